// Matrix products: out[b] = alpha * (left[b] @ right[b]) * factors + beta * self[b], any strides. Goes after "strips".
//
// OUT, LEFT, RIGHT, SELF  how values are stored: f32 of TB_LOAD_f32; SELF only where there is one
// FACTOR_0, FACTOR_1      likewise, of what the product is multiplied by; DIVISOR: of one number that the result is divided by
// GROUPS                  1: the rows of left and out are of groups, and each has the right side of its own batch; 2: the depth
//                         is of groups, and each has a batch of the result. p7 says where each ends, an i32; what comes after
//                         the last one is of none, and such rows are 0
// ROWS_MOST, COLUMNS_MOST, DEPTH  of the tile that a block computes at once, and how much of k it takes at a time
// INT4                    not 0: right has 32-bit words of eight numbers of four bits each, as _convert_weight_to_int4pack lays
//                         them out, [columns / 8][depth / 16 / INT4][32][INT4 / 2]. `group_size` of the depth have a scale and
//                         what is added, [groups][columns][2] in FACTOR_0; 8 is taken off before
// CONVERTS                right is not stored as T
// FEW                     not 0: a tile has at most FEW rows, a power of two up to 8
// IN_PLACE                both sides are stored as T, and what follows along k lies one after the other
// EDGE                    side by side: an item computes EDGE by EDGE elements; FUSES where T is floating
// MATRICES                not 0: matrix units multiply, for a block of ITEMS items; LEFT_WIDE, RIGHT_WIDE: eight elements that
//                         are fetched together are aligned, and are there or not together

typedef struct {
  i64 batches, rows, columns, depth;
  i64 tile_rows, tile_columns; // at most ROWS_MOST, COLUMNS_MOST
  i64 tiles_down, groups;      // where rows are of groups: enough for any
  i64 group_size;
  i64 out[3], left[3], right[3], self[3], factor_0[3], factor_1[3]; // strides by batch, row (of right: of k), column
  tb_scalar scalars[2]; // alpha, beta
} Args;

#define OFFSET(of, batch, row, column) \
  ((batch) * (Index)args.of[0] + (row) * (Index)args.of[1] + (column) * (Index)args.of[2])
#define LEFT_AT(batch, row, k) ((T)TB_LOAD_AS(LEFT, p1, OFFSET(left, batch, row, k)))
#if INT4
#define TILE_K (16 * INT4) // of words that lie together
#define WORDS (2 * INT4)   // of these, a column's
#define WORDS_OF(tile, column) \
  ((((column) / 8 * ((Index)args.depth / TILE_K) + (tile)) * 8 + (column) % 8) * WORDS)
#define GROUP_NUMBER(k, column, n) \
  ((T)TB_LOAD_AS(FACTOR_0, p4, OFFSET(factor_0, (k) / (Index)args.group_size, column, n)))
#define NUMBER(word, n) ((T)((i32)((word) >> 4 * (n) & 15) - 8))
// In the order of numbers in words, number n of word w is the one whose k is 32 * (w % (INT4 / 2)) + 8 * (n % 4) +
// 2 * (w / (INT4 / 2)) + n / 4.
#define WORD_OF(k) ((k) % 8 / 2 * (INT4 / 2) + (k) % TILE_K / 32)
#define NUMBER_OF(k) ((k) / 8 % 4 + (k) % 2 * 4)
#define PLACE(k) ((k) / TILE_K * TILE_K + NUMBER_OF(k) * WORDS + WORD_OF(k))
#define RIGHT_AT(batch, k, column)                                                                               \
  (NUMBER(TB_LOAD_PLAIN(u32, p2, WORDS_OF((k) / TILE_K, column) + WORD_OF(k)), NUMBER_OF(k)) * GROUP_NUMBER(k, column, 0) + \
   GROUP_NUMBER(k, column, 1))
#define BRING_NEAR(to, batch, begin, depth, column)                                                    \
  for (Index k0 = 0; k0 < (depth); k0 += TILE_K) {                                                     \
    const Index from = WORDS_OF(((begin) + k0) / TILE_K, column);                                      \
    T scale[WORDS], zero[WORDS];                                                                       \
    u32 words[WORDS];                                                                                  \
    for (int w = 0; w < WORDS; ++w) words[w] = TB_LOAD_PLAIN(u32, p2, from + w);                       \
    for (int part = 0; part < INT4 / 2; ++part) {                                                      \
      const T x = GROUP_NUMBER((begin) + k0 + 32 * part, column, 0);                                   \
      const T y = GROUP_NUMBER((begin) + k0 + 32 * part, column, 1);                                   \
      for (int w = part; w < WORDS; w += INT4 / 2) {                                                   \
        scale[w] = x;                                                                                  \
        zero[w] = y;                                                                                   \
      }                                                                                                \
    }                                                                                                  \
    for (int n = 0; n < 8; ++n)                                                                        \
      for (int w = 0; w < WORDS; ++w) (to)[k0 + n * WORDS + w] = NUMBER(words[w], n) * scale[w] + zero[w]; \
  }
#else
#define PLACE(k) (k)
#define RIGHT_AT(batch, k, column) ((T)TB_LOAD_AS(RIGHT, p2, OFFSET(right, batch, k, column)))
// to[PLACE(k)] = the element k after `begin`
#define BRING_NEAR(to, batch, begin, depth, column)            \
  {                                                            \
    const Index from = OFFSET(right, batch, begin, column);    \
    for (Index k = 0; k < (depth); ++k) (to)[k] = (T)TB_LOAD_AS(RIGHT, p2, from + k * (Index)(RIGHT_STEP_K)); \
  }
#endif
#if defined(FACTOR_0) && !INT4
#define TIMES_FACTOR_0(batch, row, column) *(T)TB_LOAD_AS(FACTOR_0, p4, OFFSET(factor_0, batch, row, column))
#else
#define TIMES_FACTOR_0(batch, row, column)
#endif
#ifdef FACTOR_1
#define TIMES_FACTOR_1(batch, row, column) *(T)TB_LOAD_AS(FACTOR_1, p5, OFFSET(factor_1, batch, row, column))
#else
#define TIMES_FACTOR_1(batch, row, column)
#endif
#ifdef SELF
#define PLUS_SELF(batch, row, column) +(T)TB_SCALAR(1) * (T)TB_LOAD_AS(SELF, p3, OFFSET(self, batch, row, column))
#else
#define PLUS_SELF(batch, row, column)
#endif
#ifdef DIVISOR
#define DIVIDED(x) ((x) * (1 / (T)TB_LOAD_AS(DIVISOR, p6, 0)))
#else
#define DIVIDED(x) (x)
#endif
#define FINISH(batch, row, column, x)                                                                    \
  TB_STORE_AS(OUT, p0, OFFSET(out, batch, row, column),                                                  \
              DIVIDED((T)TB_SCALAR(0) * (x)TIMES_FACTOR_0(batch, row, column)                            \
                          TIMES_FACTOR_1(batch, row, column) PLUS_SELF(batch, row, column)))

#if GROUPS
// From what one group has of [0, count) to what group `g` has, wherever `ends` say that it ends. The one after the last has
// the rest.
#define NEXT_GROUP(g, groups, count) \
  *begin = *end;                     \
  *end = (g) < (groups) ? TB_LEAST(TB_MOST(*end, (Index)TB_LOAD_i32(ends, g)), count) : (count);
#endif
#if GROUPS == 1
// The group whose tile is number `tile`, where each has tiles of its own, and its rows from the tile's first one on: none where
// there is no such tile.
TB_DEVICE Index find_tile(TB_GLOBAL const char* ends, Index groups, Index count, Index tile, Index rows,
                          TB_PRIVATE Index* begin, TB_PRIVATE Index* end) {
  *end = 0;
  for (Index g = 0; g <= groups; ++g) {
    NEXT_GROUP(g, groups, count)
    const Index tiles = (*end - *begin + rows - 1) / rows;
    if (tile < tiles) {
      *begin += tile * rows;
      return g;
    }
    tile -= tiles;
  }
  *begin = *end;
  return groups;
}
#elif GROUPS == 2
TB_DEVICE void find_group(TB_GLOBAL const char* ends, Index groups, Index count, Index group, TB_PRIVATE Index* begin,
                          TB_PRIVATE Index* end) {
  *end = 0;
  for (Index g = 0; g <= group; ++g) {
    NEXT_GROUP(g, groups, count)
  }
}
#endif

// Sets what a tile is of: batch, [first_row, end_row), first_column, [begin_k, end_k).
#if GROUPS == 1
#define TILES_DOWN ((Index)args.tiles_down)
#define FIND_ROWS(down)                                                                                        \
  Index first_row, end_row, end_k = (Index)args.depth;                                                         \
  const Index group = find_tile(p7, (Index)args.groups, (Index)args.rows, down, TILE_ROWS, &first_row, &end_row); \
  if (first_row >= end_row) continue;                                                                          \
  const Index batch = group < (Index)args.groups ? group : 0;                                                  \
  if (group == (Index)args.groups) end_k = 0;                                                                  \
  const Index begin_k = 0;
#else
#define TILES_DOWN (((Index)args.rows + TILE_ROWS - 1) / TILE_ROWS)
#define FIND_ROWS(down)                                    \
  const Index batch = tile / (tiles_down * tiles_across);  \
  const Index first_row = (down) * TILE_ROWS;              \
  const Index end_row = (Index)args.rows;                  \
  FIND_DEPTH
#endif
#if GROUPS == 2
#define FIND_DEPTH       \
  Index begin_k, end_k; \
  find_group(p7, (Index)args.batches, (Index)args.depth, batch, &begin_k, &end_k);
#else
#define FIND_DEPTH const Index begin_k = 0, end_k = (Index)args.depth;
#endif
#define FOR_TILES                                                                            \
  const Index tiles_down = TILES_DOWN;                                                       \
  const Index tiles_across = ((Index)args.columns + TILE_COLUMNS - 1) / TILE_COLUMNS;        \
  TB_FOR_BLOCKS(tile, (Index)args.batches * tiles_down * tiles_across)
#define LOCATE                                                                 \
  const Index rest = tile % (tiles_down * tiles_across);                       \
  const Index first_column = rest % tiles_across * TILE_COLUMNS;               \
  FIND_ROWS(rest / tiles_across)
#ifdef TB_CHUNKED
#define TILE_ROWS ((Index)args.tile_rows)
#define TILE_COLUMNS ((Index)args.tile_columns)
#else
#define TILE_ROWS ROWS_MOST
#define TILE_COLUMNS COLUMNS_MOST
#endif

#if FEW

// A tile is of a few rows.
#define IN_VECTORS (RIGHT_ALONG_K && (FEW > 1 || INT4))
#if IN_VECTORS
#if IN_PLACE
#define SPACE TB_GLOBAL
#define READ_AHEAD TB_READ_AHEAD
#else
#define SPACE TB_LOCAL
#define READ_AHEAD(p)
#endif
// As many columns as have their sums in registers share what is read of the left side.
#define SUMS_MOST (TB_VECTOR_BYTES == 64 ? 24 : 12)
#define AT_ONCE TB_LEAST(4, SUMS_MOST / FEW)
#define SUMS (AT_ONCE * FEW)
// totals[each * FEW + row] = the sum of `depth` products, a multiple of LANES, of the row lines[row] by one of AT_ONCE columns,
// which lie `across` apart.
TB_CONTRACTED TB_DEVICE void multiply(Index depth, SPACE const T* TB_PRIVATE const* lines, SPACE const T* right, Index across,
                                      TB_PRIVATE T* totals) {
  V sums[SUMS];
  TB_UNROLL for (int i = 0; i < SUMS; ++i) sums[i] = TB_ZEROS(V);
  for (Index k = 0; k < depth; k += LANES) {
    V x[AT_ONCE];
    TB_UNROLL for (int each = 0; each < AT_ONCE; ++each) {
      x[each] = TB_VECTOR_AT(V, right + each * across + k);
      READ_AHEAD(right + (i64)(AT_ONCE + each) * across + k);
    }
    TB_UNROLL for (int row = 0; row < FEW; ++row) {
      const V y = TB_VECTOR_AT(V, lines[row] + k);
      TB_UNROLL for (int each = 0; each < AT_ONCE; ++each) sums[each * FEW + row] += y * x[each];
    }
  }
  TB_UNROLL for (int first = 0; first < SUMS; first += LANES) {
    V x[LANES];
    TB_UNROLL for (int i = 0; i < LANES; ++i) x[i] = sums[TB_LEAST(first + i, SUMS - 1)]; // past the last one of no use
    TB_UNROLL for (int count = LANES / 2; count > 0; count /= 2)
      TB_UNROLL for (int i = 0; i < count; ++i) x[i] = TB_PAIR_SUMS(V, x[2 * i], x[2 * i + 1]);
    for (int i = 0; i < TB_LEAST(LANES, SUMS - first); ++i) totals[first + i] = ((TB_PRIVATE const T*)x)[i];
  }
}
#endif

#if IN_VECTORS && IN_PLACE

// Both sides are read where they are, the right one as fast as memory has it.
TB_KERNEL(matmul) {
  FOR_TILES {
    LOCATE
    const Index rows = TB_LEAST((Index)FEW, end_row - first_row);
    const Index columns = TB_LEAST(TILE_COLUMNS, (Index)args.columns - first_column);
    const Index depth = end_k - begin_k, whole = depth / LANES * LANES;
    TB_GLOBAL const T* lines[FEW];
    for (Index row = 0; row < FEW; ++row)
      lines[row] = (TB_GLOBAL const T*)p1 + OFFSET(left, batch, first_row + TB_LEAST(row, rows - 1), begin_k);
    const Index across = columns < AT_ONCE ? 0 : (Index)args.right[2];
    const Index step = columns < AT_ONCE ? 1 : AT_ONCE;
    for (Index column = 0; column < columns; column += step) {
      const Index from = TB_LEAST(column, columns - step); // the last ones, once more
      TB_GLOBAL const T* const right = (TB_GLOBAL const T*)p2 + OFFSET(right, batch, begin_k, first_column + from);
      T totals[SUMS];
      multiply(whole, lines, right, across, totals);
      for (Index each = column - from; each < step; ++each)
        for (Index row = 0; row < rows; ++row) {
          T total = totals[each * FEW + row];
          for (Index k = whole; k < depth; ++k) total += lines[row][k] * right[each * across + k];
          FINISH(batch, first_row + row, first_column + from + each, total);
        }
    }
  }
} TB_END

#else

// A line of the right side is brought near once for all rows.
TB_KERNEL(matmul) {
  TB_LOCAL_ARRAY(T, sums, FEW * COLUMNS_MOST);
#if IN_VECTORS
  TB_LOCAL_ARRAY(V, left_of, FEW * DEPTH / LANES);
  TB_LOCAL_ARRAY(V, right_of, AT_ONCE * DEPTH / LANES);
  TB_LOCAL T* const left = (TB_LOCAL T*)left_of;
  TB_LOCAL T* const right = (TB_LOCAL T*)right_of;
  TB_LOCAL const T* lines[FEW];
  for (int row = 0; row < FEW; ++row) lines[row] = left + row * DEPTH;
#else
  TB_LOCAL_ARRAY(T, left, FEW * DEPTH);
  TB_LOCAL_ARRAY(T, right, COLUMNS_MOST);
#endif
  FOR_TILES {
    LOCATE
    const Index rows = TB_LEAST((Index)FEW, end_row - first_row);
    const Index columns = TB_LEAST(TILE_COLUMNS, (Index)args.columns - first_column);
    for (Index row = 0; row < rows; ++row)
      for (Index i = 0; i < columns; ++i) sums[row * COLUMNS_MOST + i] = 0;
    for (Index begin = begin_k; begin < end_k; begin += DEPTH) {
      const Index depth = TB_LEAST((Index)DEPTH, end_k - begin);
#if IN_VECTORS
      const Index whole = (depth + LANES - 1) / LANES * LANES;
      for (int each = 0; each < AT_ONCE; ++each)
        for (Index k = depth; k < whole; ++k) right[each * DEPTH + k] = 0;
      for (Index row = 0; row < FEW; ++row) {
        const Index there = row < rows ? depth : 0;
        for (Index k = 0; k < there; ++k) left[row * DEPTH + PLACE(k)] = LEFT_AT(batch, first_row + row, begin + k);
        for (Index k = there; k < whole; ++k) left[row * DEPTH + k] = 0;
      }
      for (Index column = 0; column < columns; column += AT_ONCE) {
        const int there = (int)TB_LEAST((Index)AT_ONCE, columns - column);
        for (int each = 0; each < there; ++each)
          BRING_NEAR(right + each * DEPTH, batch, begin, depth, first_column + column + each)
        T totals[SUMS];
        multiply(whole, lines, right, DEPTH, totals);
        for (int each = 0; each < there; ++each)
          for (Index row = 0; row < rows; ++row) sums[row * COLUMNS_MOST + column + each] += totals[each * FEW + row];
      }
#else
      for (Index row = 0; row < rows; ++row)
        for (Index k = 0; k < depth; ++k) left[row * DEPTH + k] = LEFT_AT(batch, first_row + row, begin + k);
#if RIGHT_ALONG_K
#define PARTS 32
      for (Index column = 0; column < columns; ++column) {
        const Index from = OFFSET(right, batch, begin, first_column + column);
        T parts[PARTS];
        for (int i = 0; i < PARTS; ++i) parts[i] = 0;
        Index k = 0;
        for (; k + PARTS <= depth; k += PARTS)
          for (int i = 0; i < PARTS; ++i)
            parts[i] += left[k + i] * (T)TB_LOAD_AS(RIGHT, p2, from + (k + i) * (Index)(RIGHT_STEP_K));
        for (int i = 0; k + i < depth; ++i)
          parts[i] += left[k + i] * (T)TB_LOAD_AS(RIGHT, p2, from + (k + i) * (Index)(RIGHT_STEP_K));
        for (int width = PARTS / 2; width > 0; width /= 2)
          for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
        sums[column] += parts[0];
      }
#else
      for (Index k = 0; k < depth; ++k) {
        const Index from = batch * (Index)args.right[0] + (begin + k) * (Index)args.right[1] +
                           first_column * (Index)(RIGHT_STEP_COLUMN);
#if FEW == 1
#define RIGHT_NEAR(column) (T)TB_LOAD_AS(RIGHT, p2, from + (column) * (Index)(RIGHT_STEP_COLUMN))
#else
#define RIGHT_NEAR(column) right[column]
        for (Index column = 0; column < columns; ++column)
          right[column] = (T)TB_LOAD_AS(RIGHT, p2, from + column * (Index)(RIGHT_STEP_COLUMN));
#endif
        for (Index row = 0; row < rows; ++row) {
          const T x = left[row * DEPTH + k];
          for (Index column = 0; column < columns; ++column) sums[row * COLUMNS_MOST + column] += x * RIGHT_NEAR(column);
        }
      }
#endif
#endif
    }
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < columns; ++column) {
        FINISH(batch, first_row + row, first_column + column, sums[row * COLUMNS_MOST + column]);
      }
  }
} TB_END
#endif

#elif defined(TB_CHUNKED)

// Both sides are packed.
TB_STRIP_PRODUCT(add_strip, 1, STRIP)

TB_KERNEL(matmul) {
  TB_LOCAL_ARRAY(V, sums_of, ROWS_MOST * COLUMNS_MOST / LANES);
  TB_LOCAL_ARRAY(V, right_of, DEPTH * COLUMNS_MOST / LANES);
  TB_LOCAL_ARRAY(T, left, ROWS_MOST * DEPTH);
#if RIGHT_ALONG_K && CONVERTS
  TB_LOCAL_ARRAY(T, line, DEPTH); // conversions in vectors
#endif
  TB_LOCAL T* const sums = (TB_LOCAL T*)sums_of;
  TB_LOCAL T* const right = (TB_LOCAL T*)right_of;
  FOR_TILES {
    LOCATE
    const Index rows = TB_LEAST(TILE_ROWS, end_row - first_row);
    const Index columns = TB_LEAST(TILE_COLUMNS, (Index)args.columns - first_column);
    const Index strips = (rows + STRIP - 1) / STRIP;
    const Index panels = (columns + PANEL - 1) / PANEL;
    for (Index i = 0; i < strips * panels * STRIP * PANEL; ++i) sums[i] = 0;
    for (Index begin = begin_k; begin < end_k; begin += DEPTH) {
      const Index depth = TB_LEAST((Index)DEPTH, end_k - begin);
      for (Index strip = 0; strip < strips; ++strip) {
        TB_LOCAL T* const to = left + strip * STRIP * depth;
        const Index height = TB_LEAST((Index)STRIP, rows - strip * STRIP);
        const Index from = batch * (Index)args.left[0] + (first_row + strip * STRIP) * (Index)args.left[1] +
                           begin * (Index)(LEFT_STEP_K);
        if (height < STRIP)
          for (Index i = 0; i < STRIP * depth; ++i) to[i] = 0;
#if LEFT_ALONG_K
        for (Index i = 0; i < height; ++i)
          for (Index k = 0; k < depth; ++k)
            to[k * STRIP + i] = (T)TB_LOAD_AS(LEFT, p1, from + i * (Index)args.left[1] + k * (Index)(LEFT_STEP_K));
#else
        for (Index k = 0; k < depth; ++k)
          for (Index i = 0; i < height; ++i)
            to[k * STRIP + i] = (T)TB_LOAD_AS(LEFT, p1, from + i * (Index)args.left[1] + k * (Index)(LEFT_STEP_K));
#endif
      }
      for (Index panel = 0; panel < panels; ++panel) {
        TB_LOCAL T* const to = right + panel * PANEL * depth;
        const Index width = TB_LEAST((Index)PANEL, columns - panel * PANEL);
        const Index from = batch * (Index)args.right[0] + begin * (Index)args.right[1] +
                           (first_column + panel * PANEL) * (Index)(RIGHT_STEP_COLUMN);
        if (width < PANEL)
          for (Index i = 0; i < PANEL * depth; ++i) to[i] = 0;
#if INT4 && DEPTH % TILE_K
        for (Index i = 0; i < width; ++i)
          for (Index k = 0; k < depth; ++k)
            to[k * PANEL + i] = RIGHT_AT(batch, begin + k, first_column + panel * PANEL + i);
#elif RIGHT_ALONG_K && CONVERTS
        for (Index i = 0; i < width; ++i) {
          BRING_NEAR(line, batch, begin, depth, first_column + panel * PANEL + i)
          for (Index k = 0; k < depth; ++k) to[k * PANEL + i] = line[PLACE(k)];
        }
#elif RIGHT_ALONG_K
        for (Index i = 0; i < width; ++i)
          for (Index k = 0; k < depth; ++k)
            to[k * PANEL + i] = (T)TB_LOAD_AS(RIGHT, p2, from + i * (Index)(RIGHT_STEP_COLUMN) + k * (Index)(RIGHT_STEP_K));
#else
        if (width == PANEL) {
          for (Index k = 0; k < depth; ++k)
            for (int i = 0; i < PANEL; ++i)
              to[k * PANEL + i] = (T)TB_LOAD_AS(RIGHT, p2, from + i * (Index)(RIGHT_STEP_COLUMN) + k * (Index)args.right[1]);
        } else {
          for (Index k = 0; k < depth; ++k)
            for (Index i = 0; i < width; ++i)
              to[k * PANEL + i] = (T)TB_LOAD_AS(RIGHT, p2, from + i * (Index)(RIGHT_STEP_COLUMN) + k * (Index)args.right[1]);
        }
#endif
      }
      for (Index panel = 0; panel < panels; ++panel)
        for (Index strip = 0; strip < strips; ++strip)
          add_strip(depth, left + strip * STRIP * depth, right_of + panel * 2 * depth,
                    sums_of + (panel * strips + strip) * STRIP * 2);
    }
    for (Index row = 0; row < rows; ++row)
      for (Index panel = 0; panel < panels; ++panel) {
        TB_LOCAL const T* const from = sums + ((panel * strips + row / STRIP) * STRIP + row % STRIP) * PANEL;
        const Index width = TB_LEAST((Index)PANEL, columns - panel * PANEL);
        for (Index i = 0; i < width; ++i) {
          FINISH(batch, first_row + row, first_column + panel * PANEL + i, from[i]);
        }
      }
  }
} TB_END

#else

#define UNROLLED(i, count) TB_UNROLL for (int i = 0; i < (count); ++i)
#if MATRICES

// Warps lie in two rows; each has EACH_DOWN by EACH_ACROSS parts of 16 by 16 elements of the tile. A side lies near as it does in
// memory, in lines along k or across it, which are padded so that neighbouring ones do not lie in the same banks.
#define EACH_DOWN (ROWS_MOST / 32)
#define EACH_ACROSS (COLUMNS_MOST / (ITEMS / 64) / 16)
#if LEFT_ALONG_K
#define LEFT_LINES ROWS_MOST
#define LEFT_LENGTH DEPTH
#define BEGIN_LEFT(begin, stage)                                                                                       \
  FETCH(LEFT_WIDE, left + (stage) * LEFT_LINES * LEFT_PITCH, left_from + (i64)(begin) * (LEFT_STEP_K) * 2, LEFT_LINES, \
        LEFT_LENGTH, LEFT_PITCH, args.left[1], LEFT_STEP_K, end_row - first_row, end_k - (begin))
#define FETCH_LEFT(to, row, k) \
  tb_fetch_matrices(to, left_here + ((row) + item % 16) * LEFT_PITCH + (k) + item / 16 % 2 * 8)
#else
#define LEFT_LINES DEPTH
#define LEFT_LENGTH ROWS_MOST
#define BEGIN_LEFT(begin, stage)                                                                                        \
  FETCH(LEFT_WIDE, left + (stage) * LEFT_LINES * LEFT_PITCH, left_from + (i64)(begin) * args.left[2] * 2, LEFT_LINES,   \
        LEFT_LENGTH, LEFT_PITCH, args.left[2], args.left[1], end_k - (begin), end_row - first_row)
#define FETCH_LEFT(to, row, k) \
  tb_fetch_transposed(to, left_here + ((k) + item / 16 % 2 * 8 + item % 8) * LEFT_PITCH + (row) + item / 8 % 2 * 8)
#endif
#if RIGHT_ALONG_K
#define RIGHT_LINES COLUMNS_MOST
#define RIGHT_LENGTH DEPTH
#define BEGIN_RIGHT(begin, stage)                                                                                           \
  FETCH(RIGHT_WIDE, right + (stage) * RIGHT_LINES * RIGHT_PITCH, right_from + (i64)(begin) * (RIGHT_STEP_K) * 2,            \
        RIGHT_LINES, RIGHT_LENGTH, RIGHT_PITCH, (RIGHT_STEP_COLUMN), RIGHT_STEP_K, (Index)args.columns - first_column, \
        end_k - (begin))
#define FETCH_RIGHT(to, k, column) \
  tb_fetch_matrices(to, right_here + ((column) + item / 16 % 2 * 8 + item % 8) * RIGHT_PITCH + (k) + item / 8 % 2 * 8)
#else
#define RIGHT_LINES DEPTH
#define RIGHT_LENGTH COLUMNS_MOST
#define BEGIN_RIGHT(begin, stage)                                                                                           \
  FETCH(RIGHT_WIDE, right + (stage) * RIGHT_LINES * RIGHT_PITCH, right_from + (i64)(begin) * (RIGHT_STEP_K) * 2,            \
        RIGHT_LINES, RIGHT_LENGTH, RIGHT_PITCH, (RIGHT_STEP_K), RIGHT_STEP_COLUMN, end_k - (begin),        \
        (Index)args.columns - first_column)
#define FETCH_RIGHT(to, k, column) \
  tb_fetch_transposed(to, right_here + ((k) + item % 16) * RIGHT_PITCH + (column) + item / 16 % 2 * 8)
#endif
#define LEFT_PITCH (LEFT_LENGTH + 8)
#define RIGHT_PITCH (RIGHT_LENGTH + 8)
#define STAGES 2

// `lines` lines of `length` elements, and 0 for those that there are not.
#define FETCH(WIDE, to, from, lines, length, pitch, line_step, step, lines_left, elements_left)                  \
  if (WIDE) {                                                                                                    \
    UNROLLED(turn, (lines) * ((length) / 8) / ITEMS) {                                                           \
      const int i = turn * ITEMS + item, line = i / ((length) / 8), e = i % ((length) / 8) * 8;                  \
      const int is_there = line < (lines_left) && e < (elements_left);                                           \
      tb_begin_fetch((to) + line * (pitch) + e, is_there ? (from) + ((i64)line * (line_step) + e) * 2 : (from), is_there); \
    }                                                                                                            \
  } else {                                                                                                       \
    for (int i = item; i < (lines) * (length); i += ITEMS) {                                                     \
      const int line = i / (length), e = i % (length);                                                           \
      const int is_there = line < (lines_left) && e < (elements_left);                                           \
      ((to) + line * (pitch))[e] = is_there ? ((const u16*)(from))[(i64)line * (line_step) + (i64)e * (step)] : (u16)0; \
    }                                                                                                            \
  }
#define BEGIN_TILE(begin, stage) \
  BEGIN_LEFT(begin, stage)       \
  BEGIN_RIGHT(begin, stage)      \
  tb_begin_group();

TB_KERNEL(matmul) {
  TB_LOCAL_ARRAY(tb_bytes<16>, left_of, STAGES * LEFT_LINES * LEFT_PITCH / 8);
  TB_LOCAL_ARRAY(tb_bytes<16>, right_of, STAGES * RIGHT_LINES * RIGHT_PITCH / 8);
  u16* const left = (u16*)left_of;
  u16* const right = (u16*)right_of;
  const int item = (int)TB_LOCAL_ITEM;
  const int own_row = item / 32 % 2 * (16 * EACH_DOWN), own_column = item / 64 * (16 * EACH_ACROSS);
  FOR_TILES {
    LOCATE
    const char* const left_from = p1 + ((i64)batch * args.left[0] + (i64)first_row * args.left[1]) * 2;
    const char* const right_from = p2 + ((i64)batch * args.right[0] + (i64)first_column * (RIGHT_STEP_COLUMN)) * 2;
    f32 sums[EACH_DOWN][EACH_ACROSS][8];
    UNROLLED(m, EACH_DOWN) UNROLLED(n, EACH_ACROSS) UNROLLED(e, 8) sums[m][n][e] = 0;
    for (Index begin = begin_k; begin < end_k; begin += DEPTH) {
      // The next part comes while this one is multiplied.
      const int stage = (int)((begin - begin_k) / DEPTH % STAGES);
      TB_BARRIER();
      if (begin == begin_k) {
        BEGIN_TILE(begin, stage)
      }
      if (begin + DEPTH < end_k) {
        BEGIN_TILE(begin + DEPTH, 1 - stage)
        tb_await_groups(1);
      } else {
        tb_await_groups(0);
      }
      TB_BARRIER();
      const u16* const left_here = left + stage * LEFT_LINES * LEFT_PITCH;
      const u16* const right_here = right + stage * RIGHT_LINES * RIGHT_PITCH;
      UNROLLED(k, DEPTH / 16) {
        u32 l[EACH_DOWN][4];
        UNROLLED(m, EACH_DOWN) FETCH_LEFT(l[m], own_row + m * 16, k * 16);
        UNROLLED(n, EACH_ACROSS) {
          u32 r[4];
          FETCH_RIGHT(r, k * 16, own_column + n * 16);
          UNROLLED(m, EACH_DOWN) UNROLLED(half, 2) {
            f32* const to = sums[m][n] + 4 * half;
            TB_PASTE(tb_add_product_, LEFT)(to[0], to[1], to[2], to[3], l[m], r[2 * half], r[2 * half + 1]);
          }
        }
      }
    }
    UNROLLED(m, EACH_DOWN) UNROLLED(n, EACH_ACROSS) UNROLLED(e, 8) {
      const Index row = first_row + own_row + m * 16 + e / 2 % 2 * 8 + item % 32 / 4;
      const Index column = first_column + own_column + n * 16 + e / 4 * 8 + item % 4 * 2 + e % 2;
      if (row < end_row && column < (Index)args.columns) {
        FINISH(batch, row, column, sums[m][n][e]);
      }
    }
  }
} TB_END

#else

// An item's EDGE by EDGE elements of the tile lie SIDE_ROWS and SIDE_COLUMNS apart.
#define SIDE_ROWS (ROWS_MOST / EDGE)
#define SIDE_COLUMNS (COLUMNS_MOST / EDGE)
#if FUSES
#define ADD_PRODUCT(sum, x, y) sum = TB_FMA(x, y, sum)
#else
#define ADD_PRODUCT(sum, x, y) sum += (x) * (y)
#endif
TB_KERNEL(matmul) {
  TB_LOCAL_ARRAY(T, left, DEPTH * (ROWS_MOST + 1));
  TB_LOCAL_ARRAY(T, right, DEPTH * (COLUMNS_MOST + 1));
  const int item = (int)TB_LOCAL_ITEM;
  const int items = (int)TB_BLOCK_ITEMS;
  const int down = item / SIDE_COLUMNS;
  const int across = item % SIDE_COLUMNS;
  FOR_TILES {
    LOCATE
    T sums[EDGE][EDGE];
    UNROLLED(i, EDGE) UNROLLED(j, EDGE) sums[i][j] = 0;
    for (Index begin = begin_k; begin < end_k; begin += DEPTH) {
      for (int i = item; i < ROWS_MOST * DEPTH; i += items) {
#if LEFT_ALONG_K
        const int k = i % DEPTH, row = i / DEPTH;
#else
        const int k = i / ROWS_MOST, row = i % ROWS_MOST;
#endif
        left[k * (ROWS_MOST + 1) + row] = begin + k < end_k && first_row + row < end_row
                                              ? LEFT_AT(batch, first_row + row, begin + k)
                                              : (T)0;
      }
      for (int i = item; i < COLUMNS_MOST * DEPTH; i += items) {
#if RIGHT_ALONG_K
        const int k = i % DEPTH, column = i / DEPTH;
#else
        const int k = i / COLUMNS_MOST, column = i % COLUMNS_MOST;
#endif
        right[k * (COLUMNS_MOST + 1) + column] = begin + k < end_k && first_column + column < (Index)args.columns
                                                     ? RIGHT_AT(batch, begin + k, first_column + column)
                                                     : (T)0;
      }
      TB_BARRIER();
      for (int k = 0; k < DEPTH; ++k) {
        T l[EDGE], r[EDGE];
        UNROLLED(i, EDGE) l[i] = left[k * (ROWS_MOST + 1) + down + i * SIDE_ROWS];
        UNROLLED(i, EDGE) r[i] = right[k * (COLUMNS_MOST + 1) + across + i * SIDE_COLUMNS];
        UNROLLED(i, EDGE) UNROLLED(j, EDGE) ADD_PRODUCT(sums[i][j], l[i], r[j]);
      }
      TB_BARRIER();
    }
    UNROLLED(i, EDGE) UNROLLED(j, EDGE) {
      const Index row = first_row + down + i * SIDE_ROWS, column = first_column + across + j * SIDE_COLUMNS;
      if (row < end_row && column < (Index)args.columns) {
        FINISH(batch, row, column, sums[i][j]);
      }
    }
  }
} TB_END
#endif
#endif
