// Discrete Fourier transforms of rows: Stockham's passes between two buffers, for several rows side by side. They are
// forward; of what has real and imaginary parts swapped, before and after, they are backward.
//
// p0 the result, p1 the rows, p2 factors of the result, p3 the buffers and roots of one item where it does rows alone
//
// What an element is, by its place in the whole row:
// REAL_IN         a real number
// HERMITIAN_IN    of the first half of a row whose other half is conjugate
// FILTER_IN       the conjugate of the chirp, which is as long as the row is wide: nothing is read
// SWAP_IN, CHIRP_IN    swapped; then multiplied by the chirp
// and what becomes of it:
// SWAP_RESULT     swapped
// TWIST_OUT       multiplied by the root of unity that its row's number and its own are the power of
// FACTORS_OUT     multiplied by the element of p2 at its place
// CHIRP_OUT, SWAP_OUT  multiplied by the chirp; then swapped
// OF_REAL         without imaginary part where the transform of real numbers has none
// REAL_OUT        its real part
//
// KEPT       rank of what tells rows apart
// LANES      rows side by side, where an item does them; most of them elsewhere
// CAPACITY   elements of them, where items run together

#define IN 0
#define OUT 1
#define NUMBER 2    // of the row, as the power of a root
#define IN_PLACE 3  // of its first element in the whole row
#define OUT_PLACE 4
#define OPERANDS 5

typedef struct {
  i64 rows, size;
  i64 whole;     // the size that places and chirps are of
  i64 period;    // of NUMBER times an element's
  i64 given;     // places before it are read, others are 0
  i64 kept;      // places before it are written
  i64 in_stride, out_stride; // from place to place
  i64 in_step, out_step;     // from element to element, in places
  i64 lanes_shift;           // rows side by side, as a power of two
  i64 load_along, store_along; // whether neighbours are elements of a row rather than rows
  i64 num_passes;
  i64 radices[24];
  i64 kept_sizes[KEPT];
  i64 kept_strides[OPERANDS][KEPT];
  tb_scalar scalars[1];
} Args;

#ifdef TB_CHUNKED
#define SPACE TB_GLOBAL
#define ROWS LANES
#define AT(j, l) ((j) * LANES + (l))
#define OWN_LANES LANES // of an item
#define OWN(l) (l)
#define FOR_POINTS(j, count) for (Index j = 0; j < (count); ++j)
#define FOR_LANES(l) TB_INDEPENDENT for (int l = 0; l < LANES; ++l)
#define ROOT(power) const T wr = roots[power], wi = roots[size + (power)];
#define FOR_ELEMENTS(j, l, along)                                                                  \
  for (Index outer = 0, outers = (along) ? here : size, inners = (along) ? size : here; outer < outers; ++outer) \
    for (Index inner = 0, l = (along) ? outer : 0, j = (along) ? 0 : outer; inner < inners;       \
         ++inner, l += !(along), j += (along))
#else
#define SPACE TB_LOCAL
#define ROWS ((Index)1 << shift)
#define AT(j, l) (((j) << shift) + (l))
#define OWN_LANES 1
#define OWN(l) 0
#define FOR_POINTS(j, count)                                                                                   \
  for (Index point = (Index)TB_LOCAL_ITEM, j = point >> shift; point < (count) << shift;                       \
       point += (Index)TB_BLOCK_ITEMS, j = point >> shift)
#define FOR_LANES(l) for (Index l = point & (ROWS - 1), once = 1; once; once = 0)
#define ROOT(power)    \
  T wr, wi;            \
  root_of(power, size, &wr, &wi);
#define FOR_ELEMENTS(j, l, along)                                                                       \
  for (Index element = (Index)TB_LOCAL_ITEM; element < (along ? here * size : size << shift);           \
       element += (Index)TB_BLOCK_ITEMS)                                                                \
    for (Index l = (along) ? element / size : element & (ROWS - 1),                                     \
               j = (along) ? element - l * size : element >> shift, once = l < here; once; once = 0)
#endif

// exp(-2 pi i power / of), 0 <= power < of: an eighth of a turn at most is left for the series.
TB_DEVICE void root_of(Index power, Index of, TB_PRIVATE T* re, TB_PRIVATE T* im) {
  const int below = power > of - power;
  power = 2 * (below ? of - power : power);
  const int left = power > of - power;
  power = 2 * (left ? of - power : power);
  const int steep = power > of - power;
  power = steep ? of - power : power;
  const T x = TC(1.5707963267948966) * ((T)power / (T)of), y = x * x;
#ifdef TB_T_f64
  const T sine = x * (1 + y * (-1 / 6.0 + y * (1 / 120.0 + y * (-1 / 5040.0 + y * (1 / 362880.0 + y * (-1 / 39916800.0 +
      y * (1 / 6227020800.0 + y * (-1 / 1307674368000.0 + y / 355687428096000.0))))))));
  const T cosine = 1 + y * (-1 / 2.0 + y * (1 / 24.0 + y * (-1 / 720.0 + y * (1 / 40320.0 + y * (-1 / 3628800.0 +
      y * (1 / 479001600.0 + y * (-1 / 87178291200.0 + y * (1 / 20922789888000.0 - y / 6402373705728000.0))))))));
#else
  const T sine = x * (1 + y * (TC(-0.16666667) + y * (TC(0.0083333333) + y * (TC(-0.0001984127) +
      y * TC(2.7557319e-6)))));
  const T cosine = 1 + y * (TC(-0.5) + y * (TC(0.041666667) + y * (TC(-0.0013888889) + y * (TC(2.4801587e-5) -
      y * TC(2.7557319e-7)))));
#endif
  const T across = steep ? sine : cosine, up = steep ? cosine : sine;
  *re = left ? -across : across;
  *im = below ? up : -up;
}

// exp(-pi i j j / whole)
TB_DEVICE void chirp_of(Index j, Index whole, TB_PRIVATE T* re, TB_PRIVATE T* im) {
  root_of((Index)((u64)j * (u64)j % (2 * (u64)whole)), 2 * whole, re, im);
}

#define TIMES(r, i, wr, wi)               \
  {                                       \
    const T tb_r = (r) * (wr) - (i) * (wi); \
    (i) = (r) * (wi) + (i) * (wr);        \
    (r) = tb_r;                           \
  }
#define SWAP(r, i)     \
  {                    \
    const T tb_r = (r); \
    (r) = (i);         \
    (i) = tb_r;        \
  }
#define TAKE(n, j, wr, wi)                            \
  T r##n = from[AT(j, l)], i##n = from_im[AT(j, l)];  \
  if (width > 1) TIMES(r##n, i##n, wr, wi)
#define TAKE_FIRST(j) const T r0 = from[AT(j, l)], i0 = from_im[AT(j, l)];
#define PUT(n, re, im)                                \
  to[AT(place + (n) * width, l)] = re;                \
  to_im[AT(place + (n) * width, l)] = im;

TB_KERNEL(fft) {
  const Index size = (Index)args.size, whole = (Index)args.whole;
  const Index shift = (Index)args.lanes_shift;
  const Index groups = ((Index)args.rows + ROWS - 1) / ROWS;
#ifdef TB_CHUNKED
  SPACE T* const buffers = TB_OWN((TB_GLOBAL T*)p3, (4 * LANES + 2) * size);
  SPACE T* const roots = buffers + 4 * LANES * size;
  const Index plane = LANES * size;
  for (Index j = 0; j < size; ++j) {
    T re, im;
    root_of(j, size, &re, &im);
    roots[j] = re;
    roots[size + j] = im;
  }
  Index bases[OPERANDS][LANES];
  TB_FOR(group, groups) {
#else
  TB_LOCAL_ARRAY(T, buffers, 4 * CAPACITY);
  TB_LOCAL_ARRAY(Index, bases, OPERANDS)[LANES];
  const Index plane = CAPACITY;
  TB_FOR_BLOCKS(group, groups) {
#endif
    SPACE T* from = buffers;
    SPACE T* to = buffers + 2 * plane;
    const Index first = group * ROWS;
    const Index here = TB_LEAST(ROWS, (Index)args.rows - first);
#ifdef TB_CHUNKED
    for (Index l = 0; l < here; ++l) {
#else
    TB_BARRIER();
    for (Index l = (Index)TB_LOCAL_ITEM; l < here; l += (Index)TB_BLOCK_ITEMS) {
#endif
      Index base[OPERANDS];
      TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, first + l, 0, OPERANDS)
      for (int n = 0; n < OPERANDS; ++n) bases[n][l] = base[n];
    }
    TB_BARRIER();

    FOR_ELEMENTS(j, l, args.load_along) {
      const Index place = bases[IN_PLACE][l] + j * (Index)args.in_step;
      T r = 0, i = 0;
#ifdef FILTER_IN
      const Index distance = TB_LEAST(place, (Index)args.given - place);
      if (distance < whole) {
        chirp_of(distance, whole, &r, &i);
        i = -i;
      }
#else
      if (place < (Index)args.given) {
#ifdef HERMITIAN_IN
        const int mirrored = place > whole - place;
        const Index at = bases[IN][l] + (mirrored ? whole - place : place) * (Index)args.in_stride;
        r = TB_LOAD_AS(TB_T, p1, 2 * at);
        i = TB_LOAD_AS(TB_T, p1, 2 * at + 1);
        if (mirrored) i = -i;
        if (place == 0 || place == whole - place) i = 0;
#else
        const Index at = bases[IN][l] + place * (Index)args.in_stride;
#ifdef REAL_IN
        r = TB_LOAD_AS(TB_T, p1, at);
#else
        r = TB_LOAD_AS(TB_T, p1, 2 * at);
        i = TB_LOAD_AS(TB_T, p1, 2 * at + 1);
#endif
#endif
#ifdef SWAP_IN
        SWAP(r, i)
#endif
#ifdef CHIRP_IN
        T wr, wi;
        chirp_of(place, whole, &wr, &wi);
        TIMES(r, i, wr, wi)
#endif
      }
#endif
      from[AT(j, l)] = r;
      from[plane + AT(j, l)] = i;
    }

    Index width = 1; // of the transforms that are done
    for (int pass = 0; pass < (int)args.num_passes; ++pass) {
      const Index radix = (Index)args.radices[pass], apart = size / radix, step = apart / width;
      SPACE T* const from_im = from + plane;
      SPACE T* const to_im = to + plane;
      TB_BARRIER();
      if (radix == 4) {
        FOR_POINTS(j, apart) {
          const Index k = j % width, place = (j - k) * 4 + k;
          T wr1 = 1, wi1 = 0, wr2 = 1, wi2 = 0, wr3 = 1, wi3 = 0;
          if (width > 1) {
            { ROOT(k * step) wr1 = wr; wi1 = wi; }
            { ROOT(k * step * 2) wr2 = wr; wi2 = wi; }
            { ROOT(k * step * 3) wr3 = wr; wi3 = wi; }
          }
          FOR_LANES(l) {
            TAKE_FIRST(j)
            TAKE(1, j + apart, wr1, wi1)
            TAKE(2, j + 2 * apart, wr2, wi2)
            TAKE(3, j + 3 * apart, wr3, wi3)
            const T sr = r0 + r2, si = i0 + i2, dr = r0 - r2, di = i0 - i2;
            const T tr = r1 + r3, ti = i1 + i3, er = i1 - i3, ei = r3 - r1;
            PUT(0, sr + tr, si + ti)
            PUT(1, dr + er, di + ei)
            PUT(2, sr - tr, si - ti)
            PUT(3, dr - er, di - ei)
          }
        }
      } else if (radix == 2) {
        FOR_POINTS(j, apart) {
          const Index k = j % width, place = (j - k) * 2 + k;
          T wr1 = 1, wi1 = 0;
          if (width > 1) {
            ROOT(k * step)
            wr1 = wr;
            wi1 = wi;
          }
          FOR_LANES(l) {
            TAKE_FIRST(j)
            TAKE(1, j + apart, wr1, wi1)
            PUT(0, r0 + r1, i0 + i1)
            PUT(1, r0 - r1, i0 - i1)
          }
        }
      } else {
        // Every output by itself: the roots of one are `turn` apart.
        FOR_POINTS(o, size) {
          const Index j = o / radix, n = o - j * radix;
          const Index k = j % width, place = (j - k) * radix + k;
          const Index turn = (k + n * width) * step;
          T sum_r[OWN_LANES], sum_i[OWN_LANES];
          FOR_LANES(l) {
            sum_r[OWN(l)] = from[AT(j, l)];
            sum_i[OWN(l)] = from_im[AT(j, l)];
          }
          for (Index q = 1, power = turn; q < radix; ++q) {
            ROOT(power)
            power = power >= size - turn ? power - (size - turn) : power + turn;
            FOR_LANES(l) {
              const T r = from[AT(j + q * apart, l)], i = from_im[AT(j + q * apart, l)];
              sum_r[OWN(l)] += r * wr - i * wi;
              sum_i[OWN(l)] += r * wi + i * wr;
            }
          }
          FOR_LANES(l) {
            PUT(n, sum_r[OWN(l)], sum_i[OWN(l)])
          }
        }
      }
      SPACE T* const done = to;
      to = from;
      from = done;
      width *= radix;
    }
    TB_BARRIER();

    FOR_ELEMENTS(j, l, args.store_along) {
      const Index place = bases[OUT_PLACE][l] + j * (Index)args.out_step;
      if (place < (Index)args.kept) {
        const Index at = bases[OUT][l] + place * (Index)args.out_stride;
        T r = from[AT(j, l)], i = from[plane + AT(j, l)];
#ifdef SWAP_RESULT
        SWAP(r, i)
#endif
#if defined(TWIST_OUT) || defined(CHIRP_OUT)
        T wr, wi;
#ifdef TWIST_OUT
        root_of(bases[NUMBER][l] * j, (Index)args.period, &wr, &wi);
#else
        chirp_of(place, whole, &wr, &wi);
#endif
        TIMES(r, i, wr, wi)
#endif
#ifdef FACTORS_OUT
        TIMES(r, i, TB_LOAD_AS(TB_T, p2, 2 * place), TB_LOAD_AS(TB_T, p2, 2 * place + 1))
#endif
        r *= TB_SCALAR(0);
        i *= TB_SCALAR(0);
#ifdef SWAP_OUT
        SWAP(r, i)
#endif
#ifdef OF_REAL
        if (place == 0 || place == whole - place) i = 0;
#endif
#ifdef REAL_OUT
        TB_STORE_AS(TB_T, p0, at, r);
#else
        TB_STORE_AS(TB_T, p0, 2 * at, r);
        TB_STORE_AS(TB_T, p0, 2 * at + 1, i);
#endif
      }
    }
  }
} TB_END
