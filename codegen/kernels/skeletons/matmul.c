// Matrix products: out[b] = alpha * (left[b] @ right[b]) + beta * self[b], any strides. Goes after "strips".
//
// OUT, LEFT, RIGHT, SELF  how values are stored: f32 of TB_LOAD_f32; SELF only where there is one
// SELF_SCALES             not 0: the product is multiplied by self in place of the sum
// ROWS_MOST, COLUMNS_MOST, DEPTH  of the tile that a block computes at once, and how much of k it takes at a time
// FEW                     not 0: there are at most FEW rows: the right side is read once, where it lies

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

// A block of ITEMS items: each computes EDGE by EDGE elements of the tile, which lie SIDE_ROWS and SIDE_COLUMNS apart.
#define EDGE 4
#define SIDE_ROWS (ROWS_MOST / EDGE)
#define SIDE_COLUMNS (COLUMNS_MOST / EDGE)
TB_KERNEL(matmul) {
  TB_LOCAL_ARRAY(T, left, DEPTH * (ROWS_MOST + 1));
  TB_LOCAL_ARRAY(T, right, DEPTH * (COLUMNS_MOST + 1));
  const Index tiles_down = ((Index)args.rows + ROWS_MOST - 1) / ROWS_MOST;
  const Index tiles_across = ((Index)args.columns + COLUMNS_MOST - 1) / COLUMNS_MOST;
  const int item = (int)TB_LOCAL_ITEM;
  const int items = (int)TB_BLOCK_ITEMS;
  const int down = item / SIDE_COLUMNS;
  const int across = item % SIDE_COLUMNS;
  TB_FOR_BLOCKS(tile, (Index)args.batches * tiles_down * tiles_across) {
    const Index batch = tile / (tiles_down * tiles_across);
    const Index rest = tile - batch * tiles_down * tiles_across;
    const Index first_row = rest / tiles_across * ROWS_MOST;
    const Index first_column = rest % tiles_across * COLUMNS_MOST;
    T sums[EDGE][EDGE];
    for (int i = 0; i < EDGE; ++i)
      for (int j = 0; j < EDGE; ++j) sums[i][j] = 0;
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
        for (int i = 0; i < EDGE; ++i) l[i] = left[k * (ROWS_MOST + 1) + down + i * SIDE_ROWS];
        for (int i = 0; i < EDGE; ++i) r[i] = right[k * (COLUMNS_MOST + 1) + across + i * SIDE_COLUMNS];
        for (int i = 0; i < EDGE; ++i)
          for (int j = 0; j < EDGE; ++j) sums[i][j] += l[i] * r[j];
      }
      TB_BARRIER();
    }
    for (int i = 0; i < EDGE; ++i)
      for (int j = 0; j < EDGE; ++j) {
        const Index row = first_row + down + i * SIDE_ROWS, column = first_column + across + j * SIDE_COLUMNS;
        if (row < (Index)args.rows && column < (Index)args.columns) {
          FINISH(batch, row, column, sums[i][j]);
        }
      }
  }
} TB_END
#endif
