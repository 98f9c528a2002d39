// Matrix products: out[b] = alpha * (left[b] @ right[b]) + beta * self[b], any strides. Goes after "strips".
//
// OUT, LEFT, RIGHT, SELF  how values are stored: f32 of TB_LOAD_f32; SELF only where there is one
// SELF_SCALES             not 0: the product is multiplied by self in place of the sum
// ROWS_MOST, COLUMNS_MOST, DEPTH  of the tile that a block computes at once, and how much of k it takes at a time
// FEW                     not 0: there are at most FEW rows: the right side is read once, where it lies
// EDGE                    side by side: an item computes EDGE by EDGE elements; FUSES where T is floating
// MATRICES                not 0: matrix units multiply, for a block of ITEMS items; LEFT_WIDE, RIGHT_WIDE: eight elements that
//                         are fetched together are aligned, and are there or not together

typedef struct {
  i64 batches, rows, columns, depth;
  i64 tile_rows, tile_columns; // at most ROWS_MOST, COLUMNS_MOST
  i64 out[3], left[3], right[3], self[3]; // strides by batch, row (of right: of k), column
  tb_scalar scalars[2]; // alpha, beta
} Args;


#ifdef SELF
#define SELF_AT(batch, row, column)                                                         \
  ((T)TB_LOAD_AS(SELF, p3, (batch) * (Index)args.self[0] + (row) * (Index)args.self[1] +    \
                               (column) * (Index)args.self[2]))
#if SELF_SCALES
#define WITH_SELF(x, self) ((x) * (self))
#else
#define WITH_SELF(x, self) ((T)TB_SCALAR(0) * (x) + (T)TB_SCALAR(1) * (self))
#endif
#define FINISH(batch, row, column, x)                                                                             \
  TB_STORE_AS(OUT, p0, (batch) * (Index)args.out[0] + (row) * (Index)args.out[1] + (column) * (Index)args.out[2], \
              WITH_SELF(x, SELF_AT(batch, row, column)))
#else
#define FINISH(batch, row, column, x)                                                                             \
  TB_STORE_AS(OUT, p0, (batch) * (Index)args.out[0] + (row) * (Index)args.out[1] + (column) * (Index)args.out[2], \
              (T)TB_SCALAR(0) * (x))
#endif
#define LEFT_AT(batch, row, k) \
  ((T)TB_LOAD_AS(LEFT, p1, (batch) * (Index)args.left[0] + (row) * (Index)args.left[1] + (k) * (Index)args.left[2]))
#define RIGHT_AT(batch, k, column) \
  ((T)TB_LOAD_AS(RIGHT, p2, (batch) * (Index)args.right[0] + (k) * (Index)args.right[1] + (column) * (Index)args.right[2]))


#if FEW

// A block takes tile_columns columns of all rows.
#define PARTS 64
TB_KERNEL(matmul) {
  TB_LOCAL_ARRAY(T, sums, FEW * COLUMNS_MOST);
  TB_LOCAL_ARRAY(T, left, FEW * DEPTH);
  const Index tiles = ((Index)args.columns + (Index)args.tile_columns - 1) / (Index)args.tile_columns;
  TB_FOR_BLOCKS(tile, tiles * (Index)args.batches) {
    const Index batch = tile / tiles;
    const Index first = (tile - batch * tiles) * (Index)args.tile_columns;
    const Index columns = TB_LEAST((Index)args.tile_columns, (Index)args.columns - first);
    for (Index i = 0; i < FEW * COLUMNS_MOST; ++i) sums[i] = 0;
    for (Index begin = 0; begin < (Index)args.depth; begin += DEPTH) {
      const Index depth = TB_LEAST((Index)DEPTH, (Index)args.depth - begin);
      for (Index row = 0; row < (Index)args.rows; ++row)
        for (Index k = 0; k < depth; ++k) left[row * DEPTH + k] = LEFT_AT(batch, row, begin + k);
#if RIGHT_ALONG_K
      for (Index column = 0; column < columns; ++column) {
        const Index from = batch * (Index)args.right[0] + begin * (Index)(RIGHT_STEP_K) +
                           (first + column) * (Index)args.right[2];
        for (Index row = 0; row < (Index)args.rows; ++row) {
          T parts[PARTS];
          for (int i = 0; i < PARTS; ++i) parts[i] = 0;
          Index k = 0;
          for (; k + PARTS <= depth; k += PARTS)
            for (int i = 0; i < PARTS; ++i)
              parts[i] += left[row * DEPTH + k + i] * (T)TB_LOAD_AS(RIGHT, p2, from + (k + i) * (Index)(RIGHT_STEP_K));
          for (int i = 0; k + i < depth; ++i)
            parts[i] += left[row * DEPTH + k + i] * (T)TB_LOAD_AS(RIGHT, p2, from + (k + i) * (Index)(RIGHT_STEP_K));
          for (int width = PARTS / 2; width > 0; width /= 2)
            for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
          sums[row * COLUMNS_MOST + column] += parts[0];
        }
      }
#else
      for (Index k = 0; k < depth; ++k) {
        const Index from = batch * (Index)args.right[0] + (begin + k) * (Index)args.right[1] +
                           first * (Index)(RIGHT_STEP_COLUMN);
        for (Index row = 0; row < (Index)args.rows; ++row) {
          const T x = left[row * DEPTH + k];
          for (Index column = 0; column < columns; ++column)
            sums[row * COLUMNS_MOST + column] += x * (T)TB_LOAD_AS(RIGHT, p2, from + column * (Index)(RIGHT_STEP_COLUMN));
        }
      }
#endif
    }
    for (Index row = 0; row < (Index)args.rows; ++row)
      for (Index column = 0; column < columns; ++column) {
        FINISH(batch, row, first + column, sums[row * COLUMNS_MOST + column]);
      }
  }
} TB_END

#elif defined(TB_CHUNKED)

// Both sides are packed.
TB_STRIP_PRODUCT(add_strip, 1, STRIP)

TB_KERNEL(matmul) {
  TB_LOCAL_ARRAY(V, sums_of, ROWS_MOST * COLUMNS_MOST / LANES);
  TB_LOCAL_ARRAY(V, right_of, DEPTH * COLUMNS_MOST / LANES);
  TB_LOCAL_ARRAY(T, left, ROWS_MOST * DEPTH);
  TB_LOCAL T* const sums = (TB_LOCAL T*)sums_of;
  TB_LOCAL T* const right = (TB_LOCAL T*)right_of;
  const Index tiles_down = ((Index)args.rows + (Index)args.tile_rows - 1) / (Index)args.tile_rows;
  const Index tiles_across = ((Index)args.columns + (Index)args.tile_columns - 1) / (Index)args.tile_columns;
  TB_FOR_BLOCKS(tile, (Index)args.batches * tiles_down * tiles_across) {
    const Index batch = tile / (tiles_down * tiles_across);
    const Index rest = tile - batch * tiles_down * tiles_across;
    const Index first_row = rest / tiles_across * (Index)args.tile_rows;
    const Index first_column = rest % tiles_across * (Index)args.tile_columns;
    const Index rows = TB_LEAST((Index)args.tile_rows, (Index)args.rows - first_row);
    const Index columns = TB_LEAST((Index)args.tile_columns, (Index)args.columns - first_column);
    const Index strips = (rows + STRIP - 1) / STRIP;
    const Index panels = (columns + PANEL - 1) / PANEL;
    for (Index i = 0; i < strips * panels * STRIP * PANEL; ++i) sums[i] = 0;
    for (Index begin = 0; begin < (Index)args.depth; begin += DEPTH) {
      const Index depth = TB_LEAST((Index)DEPTH, (Index)args.depth - begin);
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
#if RIGHT_ALONG_K
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
#define FOR_TILES                                                                               \
  const Index tiles_down = ((Index)args.rows + ROWS_MOST - 1) / ROWS_MOST;                      \
  const Index tiles_across = ((Index)args.columns + COLUMNS_MOST - 1) / COLUMNS_MOST;           \
  TB_FOR_BLOCKS(tile, (Index)args.batches * tiles_down * tiles_across)
#define LOCATE                                                    \
  const Index batch = tile / (tiles_down * tiles_across);         \
  const Index rest = tile - batch * tiles_down * tiles_across;    \
  const Index first_row = rest / tiles_across * ROWS_MOST;        \
  const Index first_column = rest % tiles_across * COLUMNS_MOST;

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
        LEFT_LENGTH, LEFT_PITCH, args.left[1], LEFT_STEP_K, (Index)args.rows - first_row, (Index)args.depth - (begin))
#define FETCH_LEFT(to, row, k) \
  tb_fetch_matrices(to, left_here + ((row) + item % 16) * LEFT_PITCH + (k) + item / 16 % 2 * 8)
#else
#define LEFT_LINES DEPTH
#define LEFT_LENGTH ROWS_MOST
#define BEGIN_LEFT(begin, stage)                                                                                        \
  FETCH(LEFT_WIDE, left + (stage) * LEFT_LINES * LEFT_PITCH, left_from + (i64)(begin) * args.left[2] * 2, LEFT_LINES,   \
        LEFT_LENGTH, LEFT_PITCH, args.left[2], args.left[1], (Index)args.depth - (begin), (Index)args.rows - first_row)
#define FETCH_LEFT(to, row, k) \
  tb_fetch_transposed(to, left_here + ((k) + item / 16 % 2 * 8 + item % 8) * LEFT_PITCH + (row) + item / 8 % 2 * 8)
#endif
#if RIGHT_ALONG_K
#define RIGHT_LINES COLUMNS_MOST
#define RIGHT_LENGTH DEPTH
#define BEGIN_RIGHT(begin, stage)                                                                                           \
  FETCH(RIGHT_WIDE, right + (stage) * RIGHT_LINES * RIGHT_PITCH, right_from + (i64)(begin) * (RIGHT_STEP_K) * 2,            \
        RIGHT_LINES, RIGHT_LENGTH, RIGHT_PITCH, (RIGHT_STEP_COLUMN), RIGHT_STEP_K, (Index)args.columns - first_column, \
        (Index)args.depth - (begin))
#define FETCH_RIGHT(to, k, column) \
  tb_fetch_matrices(to, right_here + ((column) + item / 16 % 2 * 8 + item % 8) * RIGHT_PITCH + (k) + item / 8 % 2 * 8)
#else
#define RIGHT_LINES DEPTH
#define RIGHT_LENGTH COLUMNS_MOST
#define BEGIN_RIGHT(begin, stage)                                                                                           \
  FETCH(RIGHT_WIDE, right + (stage) * RIGHT_LINES * RIGHT_PITCH, right_from + (i64)(begin) * (RIGHT_STEP_K) * 2,            \
        RIGHT_LINES, RIGHT_LENGTH, RIGHT_PITCH, (RIGHT_STEP_K), RIGHT_STEP_COLUMN, (Index)args.depth - (begin),        \
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
    for (Index begin = 0; begin < (Index)args.depth; begin += DEPTH) {
      // The next part comes while this one is multiplied.
      const int stage = (int)(begin / DEPTH % STAGES);
      TB_BARRIER();
      if (begin == 0) {
        BEGIN_TILE(begin, stage)
      }
      if (begin + DEPTH < (Index)args.depth) {
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
      if (row < (Index)args.rows && column < (Index)args.columns) {
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
    for (Index begin = 0; begin < (Index)args.depth; begin += DEPTH) {
      for (int i = item; i < ROWS_MOST * DEPTH; i += items) {
#if LEFT_ALONG_K
        const int k = i % DEPTH, row = i / DEPTH;
#else
        const int k = i / ROWS_MOST, row = i % ROWS_MOST;
#endif
        left[k * (ROWS_MOST + 1) + row] = begin + k < (Index)args.depth && first_row + row < (Index)args.rows
                                              ? LEFT_AT(batch, first_row + row, begin + k)
                                              : (T)0;
      }
      for (int i = item; i < COLUMNS_MOST * DEPTH; i += items) {
#if RIGHT_ALONG_K
        const int k = i % DEPTH, column = i / DEPTH;
#else
        const int k = i / COLUMNS_MOST, column = i % COLUMNS_MOST;
#endif
        right[k * (COLUMNS_MOST + 1) + column] = begin + k < (Index)args.depth && first_column + column < (Index)args.columns
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
      if (row < (Index)args.rows && column < (Index)args.columns) {
        FINISH(batch, row, column, sums[i][j]);
      }
    }
  }
} TB_END
#endif
#endif
