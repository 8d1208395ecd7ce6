// SPDX-License-Identifier: Apache-2.0
/* Convolution, ReLU and 2 x 2 max pooling of many small networks on one core, and a step of Adam.

Theory of operation. All kernels work on one peer after the other, and within a peer on a few samples at a time, so that
what they touch stays in the core's own cache. Images are copied once, channels last and with their padding, into a
scratch image [height][width][channel]. A patch is then `segments` runs of `length` neighbouring numbers (a row of the
kernel with all its channels), and is read where it lies: patches are never written.

  forward     A tile of positions times a tile of output channels lies in registers; every number of the patches is
              multiplied with a row of the kernel. Pooling looks at the finished positions, keeps the largest of four if
              it is positive, and a byte that says which it was (NONE: none was positive).

  backward    Behind ReLU and pooling at most one of four positions has a gradient, for each channel another one. A matrix
              product would multiply three zeros of four. Here the positions that do have a gradient are listed:

              kernel gradient   for each output channel, the sum over its list of  gradient x patch
              input gradient    for each position, the sum over its list of channels of  gradient x kernel

              Either way the sum lies in registers and each item is one multiplication and addition per vector, as dense
              as in a matrix product. Zeros are left out of the lists wherever they come from, so that a convolution gains
              whose ReLU and pooling are done elsewhere; full lists lose nothing.

Sums run in an order that depends on the shape of one peer's batch alone. Vectors that stick out of a run of numbers read
what lies behind it, multiply by anything, and are cut off when results are stored: buffers end with SLACK numbers.
Gradients that stick out are multiplied by zeros instead. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#if defined(__AVX512F__)
#define LANES 16
#define REGISTERS 24 /* of 32: what a tile may take */
#elif defined(__AVX__)
#define LANES 8
#define REGISTERS 12 /* of 16 */
#else
#define LANES 4
#define REGISTERS 24
#endif
#define SLACK LANES
#define NONE 4
#define GROUP 8 /* samples that are convolved at once */
#define MOST 12 /* vectors of a sum over a list */

typedef float Vector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

/* The same for all peers of a call. Filled in by the caller, field by field in this order. */
typedef struct {
  int64_t batch, channels, height, width, out;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int64_t pool, relu, pooled_h, pooled_w; /* pool: 1 or 2; pooled: size of the result */
} Shape;

/* What follows from a shape. */
typedef struct {
  int64_t padded_w, image;     /* of the scratch image: numbers in a row, and in all */
  int64_t segments, length;    /* of a patch */
  int64_t vectors;             /* of a segment */
  int64_t taps, depth, wide;   /* kernel positions; numbers of a patch; output channels, rounded up to vectors */
  int64_t places, results;     /* convolved positions of one sample; pooled ones */
  int32_t *segment;            /* where each segment begins, from the patch's first number */
  int32_t *place;              /* where each position's patch begins  [sample of a group][position] */
  int32_t *source;             /* where the patch begins that a result may come from  [result][pool * pool] */
} Plan;

static void *numbers(int64_t count) {
  void *memory = NULL;
  return posix_memalign(&memory, 64, (size_t)(count + SLACK) * 4) ? NULL : memory;
}

static int64_t rounded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

static void forget(Plan *plan) {
  free(plan->segment);
  free(plan->place);
  free(plan->source);
}

/* Returns 0 if memory is short. */
static int make_plan(const Shape *s, Plan *p) {
  int64_t padded_h = s->height + 2 * s->pad_h, row, across = s->pooled_w * s->pool;
  p->padded_w = (s->width + 2 * s->pad_w) * s->channels;
  p->image = padded_h * p->padded_w;
  p->taps = s->kernel_h * s->kernel_w;
  p->depth = p->taps * s->channels;
  p->segments = s->dilation_w == 1 ? s->kernel_h : p->taps;
  p->length = p->depth / p->segments;
  p->vectors = rounded(p->length) / LANES;
  p->wide = rounded(s->out);
  p->results = s->pooled_h * s->pooled_w;
  p->places = p->results * s->pool * s->pool;
  p->segment = numbers(p->segments);
  p->place = numbers(p->places * GROUP + REGISTERS);
  p->source = numbers(p->places);
  if (!p->segment || !p->place || !p->source) return 0;
  for (int64_t i = 0; i < p->segments; i++) {
    int64_t tap = p->segments == p->taps ? i : i * s->kernel_w;
    p->segment[i] = (int32_t)(tap / s->kernel_w * s->dilation_h * p->padded_w +
                              tap % s->kernel_w * s->dilation_w * s->channels);
  }
  memset(p->place, 0, (size_t)(p->places * GROUP + REGISTERS) * 4);
  for (int64_t i = 0; i < p->places * GROUP; i++) {
    row = i % p->places;
    p->place[i] = (int32_t)(i / p->places * p->image + row / across * s->stride_h * p->padded_w +
                            row % across * s->stride_w * s->channels);
  }
  for (int64_t i = 0; i < p->places; i++) {
    int64_t quarter = i % (s->pool * s->pool), result = i / (s->pool * s->pool);
    int64_t y = result / s->pooled_w * s->pool + quarter / s->pool, x = result % s->pooled_w * s->pool + quarter % s->pool;
    p->source[i] = p->place[y * across + x];
  }
  return 1;
}

/* One sample, channels last and padded. The border is zero already. */
static void read_image(const Shape *s, const Plan *p, const float *x, const int64_t *stride, float *image) {
  for (int64_t h = 0; h < s->height; h++) {
    float *row = image + (h + s->pad_h) * p->padded_w + s->pad_w * s->channels;
    const float *from = x + h * stride[3];
    if (stride[2] == 1 && stride[4] == s->channels) {
      memcpy(row, from, (size_t)(s->width * s->channels) * 4);
      continue;
    }
    for (int64_t c = 0; c < s->channels; c++)
      for (int64_t w = 0; w < s->width; w++) row[w * s->channels + c] = from[c * stride[2] + w * stride[4]];
  }
}

/* The kernel [out][channel][tap] as [tap][channel][wide]. */
static void pack_forward(const Shape *s, const Plan *p, const float *w, float *packed) {
  for (int64_t block = 0; block < p->wide; block += LANES)
    for (int64_t c = 0; c < s->channels; c++)
      for (int64_t t = 0; t < p->taps; t++)
        for (int64_t o = block; o < block + LANES; o++)
          packed[(t * s->channels + c) * p->wide + o] = o < s->out ? w[o * p->depth + c * p->taps + t] : 0;
}

/* The kernel as [segment][out][length, rounded up to vectors]; and back, from [out][segment][…], for its gradient. */
static void pack_backward(const Shape *s, const Plan *p, const float *w, float *packed) {
  int64_t per_segment = p->taps / p->segments;
  memset(packed, 0, (size_t)(p->segments * s->out * p->vectors * LANES) * 4);
  for (int64_t o = 0; o < s->out; o++)
    for (int64_t t = 0; t < p->taps; t++) {
      float *to = packed + (t / per_segment * s->out + o) * p->vectors * LANES + t % per_segment * s->channels;
      for (int64_t c = 0; c < s->channels; c++) to[c] = w[o * p->depth + c * p->taps + t];
    }
}

static void unpack_gradient(const Shape *s, const Plan *p, const float *packed, float *dw) {
  int64_t per_segment = p->taps / p->segments;
  for (int64_t o = 0; o < s->out; o++)
    for (int64_t t = 0; t < p->taps; t++) {
      const float *from = packed + (o * p->segments + t / per_segment) * p->vectors * LANES + t % per_segment * s->channels;
      for (int64_t c = 0; c < s->channels; c++) dw[o * p->depth + c * p->taps + t] = from[c];
    }
}

/* `tall` positions times `vectors` of output channels. */
INLINE void tile(const int tall, const int vectors, const Plan *p, const float *images, const int32_t *place,
                 const float *kernel, float *result) {
  Vector sum[REGISTERS / 2][4];
  const float *patch[REGISTERS / 2];
  UNROLL for (int i = 0; i < tall; i++) {
    patch[i] = images + place[i];
    UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = (Vector){0};
  }
  for (int64_t s = 0; s < p->segments; s++) {
    int64_t start = p->segment[s];
    for (int64_t l = start; l < start + p->length; l++, kernel += p->wide) {
      Vector row[4];
      UNROLL for (int v = 0; v < vectors; v++) row[v] = *(const Vector *)(kernel + v * LANES);
      UNROLL for (int i = 0; i < tall; i++) {
        UNROLL for (int v = 0; v < vectors; v++) sum[i][v] += patch[i][l] * row[v];
      }
    }
  }
  UNROLL for (int i = 0; i < tall; i++) {
    UNROLL for (int v = 0; v < vectors; v++) *(Vector *)(result + i * p->wide + v * LANES) = sum[i][v];
  }
}

/* All positions of some samples: results [position][wide], followed by room for one tile. */
static void convolve(const Plan *p, const float *images, int64_t positions, const float *kernel, float *result) {
  int64_t column = 0;
  for (; REGISTERS >= 24 && column + 4 * LANES <= p->wide; column += 4 * LANES)
    for (int64_t i = 0; i < positions; i += REGISTERS / 4)
      tile(REGISTERS / 4, 4, p, images, p->place + i, kernel + column, result + i * p->wide + column);
  for (; column + 2 * LANES <= p->wide; column += 2 * LANES)
    for (int64_t i = 0; i < positions; i += REGISTERS / 2)
      tile(REGISTERS / 2, 2, p, images, p->place + i, kernel + column, result + i * p->wide + column);
  for (; column < p->wide; column += LANES)
    for (int64_t i = 0; i < positions; i += REGISTERS / 2)
      tile(REGISTERS / 2, 1, p, images, p->place + i, kernel + column, result + i * p->wide + column);
}

/* Bias, ReLU and pooling of one result. A value that is not a number stays one. */
INLINE void keep(const Shape *s, const Plan *p, const int pool, const int relu, const float *restrict at, const float *restrict b,
                 float *restrict y, uint8_t *restrict source) {
  int64_t right = p->wide, below = s->pooled_w * 2 * p->wide;
  for (int64_t o = 0; o < s->out; o++) {
    float best = at[o];
    int from = 0;
    if (pool == 2) {
      float second = at[o + right], third = at[o + below], fourth = at[o + below + right];
      from = second > best || second != second ? 1 : from;
      best = second > best || second != second ? second : best;
      from = third > best || third != third ? 2 : from;
      best = third > best || third != third ? third : best;
      from = fourth > best || fourth != fourth ? 3 : from;
      best = fourth > best || fourth != fourth ? fourth : best;
    }
    best += b[o];
    if (relu) {
      from = best > 0 ? from : NONE;
      best = best > 0 || best != best ? best : 0;
    }
    y[o] = best;
    source[o] = (uint8_t)from;
  }
}

static void finish(const Shape *s, const Plan *p, const float *convolved, const float *b, float *y, uint8_t *source) {
  for (int64_t i = 0; i < p->results; i++, y += s->out, source += s->out) {
    int64_t row = i / s->pooled_w, column = i % s->pooled_w;
    const float *at = convolved + (row * s->pool * s->pooled_w * s->pool + column * s->pool) * p->wide;
    if (s->pool == 2 && s->relu) keep(s, p, 2, 1, at, b, y, source);
    else if (s->pool == 2) keep(s, p, 2, 0, at, b, y, source);
    else if (s->relu) keep(s, p, 1, 1, at, b, y, source);
    else keep(s, p, 1, 0, at, b, y, source);
  }
}

/* x [peer][batch][channel][height][width] in any strides, w [peer][out][channel][tap] with peers w_stride apart, b likewise
   -> y and source [peer][batch][pooled height][pooled width][out]. Returns 0 if memory is short. */
int pens_forward(const Shape *s, int64_t peers, const float *x, const int64_t *stride, const float *w, int64_t w_stride,
                 const float *b, int64_t b_stride, float *y, uint8_t *source) {
  Plan p;
  int ready = make_plan(s, &p);
  float *kernel = numbers(p.depth * p.wide), *images = numbers(p.image * GROUP);
  float *convolved = numbers((p.places * GROUP + REGISTERS) * p.wide);
  ready = ready && kernel && images && convolved;
  if (ready) memset(images, 0, (size_t)(p.image * GROUP + SLACK) * 4);
  for (int64_t k = 0; ready && k < peers; k++) {
    pack_forward(s, &p, w + k * w_stride, kernel);
    for (int64_t first = 0; first < s->batch; first += GROUP) {
      int64_t count = s->batch - first < GROUP ? s->batch - first : GROUP;
      for (int64_t i = 0; i < count; i++)
        read_image(s, &p, x + k * stride[0] + (first + i) * stride[1], stride, images + i * p.image);
      convolve(&p, images, count * p.places, kernel, convolved);
      for (int64_t i = 0; i < count; i++) {
        int64_t at = (k * s->batch + first + i) * p.results * s->out;
        finish(s, &p, convolved + i * p.places * p.wide, b + k * b_stride, y + at, source + at);
      }
    }
  }
  free(kernel);
  free(images);
  free(convolved);
  forget(&p);
  return ready;
}

/* sum[segment][vector] += gradient x patch, over a list of patches. */
INLINE void add_patches(const int segments, const int vectors, const float *image, const int32_t *segment, int64_t count,
                        const int32_t *place, const float *gradient, float *sums, int64_t apart) {
  Vector sum[3][MOST];
  UNROLL for (int s = 0; s < segments; s++) {
    UNROLL for (int v = 0; v < vectors; v++) sum[s][v] = *(Vector *)(sums + s * apart + v * LANES);
  }
  for (int64_t i = 0; i < count; i++) {
    const float *patch = image + place[i];
    UNROLL for (int s = 0; s < segments; s++) {
      UNROLL for (int v = 0; v < vectors; v++) sum[s][v] += gradient[i] * *(const Vector *)(patch + segment[s] + v * LANES);
    }
  }
  UNROLL for (int s = 0; s < segments; s++) {
    UNROLL for (int v = 0; v < vectors; v++) *(Vector *)(sums + s * apart + v * LANES) = sum[s][v];
  }
}

/* sum[vector] += gradient x kernel, over a list of channels. */
INLINE void add_kernels(const int vectors, int64_t count, const uint16_t *channel, const float *gradient, const float *kernel,
                        int64_t apart, float *sums) {
  Vector sum[MOST];
  UNROLL for (int v = 0; v < vectors; v++) sum[v] = *(Vector *)(sums + v * LANES);
  for (int64_t i = 0; i < count; i++) {
    const float *row = kernel + channel[i] * apart;
    UNROLL for (int v = 0; v < vectors; v++) sum[v] += gradient[channel[i]] * *(const Vector *)(row + v * LANES);
  }
  UNROLL for (int v = 0; v < vectors; v++) *(Vector *)(sums + v * LANES) = sum[v];
}

#define EACH(CASE) \
  CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#define EACH_THIRD(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)

/* One sample's part of the kernel gradient: sums [out][segment][vectors], lists [out][result]. */
static void kernel_gradient(const Shape *s, const Plan *p, const float *image, const int64_t *count, const int32_t *place,
                            const float *gradient, float *sums) {
  int64_t apart = p->vectors * LANES;
  for (int64_t o = 0; o < s->out; o++, place += p->results, gradient += p->results, sums += p->segments * apart) {
    if (p->segments == 3 && 3 * p->vectors <= REGISTERS) {
#define CASE(V) case V: add_patches(3, V, image, p->segment, count[o], place, gradient, sums, apart); break;
      switch (p->vectors) { EACH_THIRD(CASE) }
#undef CASE
      continue;
    }
    for (int64_t r = 0; r < p->segments; r++)
      for (int64_t v = 0; v < p->vectors; v += MOST) {
        int32_t start = p->segment[r] + (int32_t)(v * LANES);
        float *part = sums + r * apart + v * LANES;
#define CASE(V) case V: add_patches(1, V, image, &start, count[o], place, gradient, part, 0); break;
        switch (p->vectors - v < MOST ? p->vectors - v : MOST) { EACH(CASE) }
#undef CASE
      }
  }
}

/* For each output channel, where its gradients' patches begin and what they are; and the bias' gradient. */
static void list_patches(const Shape *s, const Plan *p, const float *g, const uint8_t *source, int64_t *count, int32_t *place,
                         float *gradient, float *db) {
  int64_t quarters = s->pool * s->pool;
  for (int64_t o = 0; o < s->out; o++) count[o] = 0;
  for (int64_t i = 0; i < p->results; i++, g += s->out, source += s->out) {
    const int32_t *at = p->source + i * quarters;
    for (int64_t o = 0; o < s->out; o++) {
      int64_t here = source[o] != NONE && g[o] != 0, next = o * p->results + count[o];
      place[next] = at[here ? source[o] : 0];
      gradient[next] = g[o];
      count[o] += here;
    }
    for (int64_t o = 0; o < s->out; o++) db[o] += source[o] != NONE ? g[o] : 0;
  }
}

/* For each result, the channels by the position they came from: count [result][NONE + 1], list [result][NONE + 1][out]. */
static void list_channels(const Shape *s, const Plan *p, const float *g, const uint8_t *source, int32_t *count, uint16_t *list) {
  for (int64_t i = 0; i < p->results; i++, g += s->out, source += s->out, count += NONE + 1, list += (NONE + 1) * s->out) {
    for (int q = 0; q <= NONE; q++) count[q] = 0;
    for (int64_t o = 0; o < s->out; o++) {
      int from = g[o] != 0 ? source[o] : NONE;
      list[from * s->out + count[from]++] = (uint16_t)o;
    }
  }
}

/* One sample's input gradient, added to a padded image of zeros. */
static void input_gradient(const Shape *s, const Plan *p, const float *g, const int32_t *count, const uint16_t *list,
                           const float *kernel, float *image) {
  int64_t quarters = s->pool * s->pool, apart = p->vectors * LANES;
  for (int64_t r = 0; r < p->segments; r++)
    for (int64_t v = 0; v < p->vectors; v += MOST) {
      const float *part = kernel + r * s->out * apart + v * LANES;
      float *start = image + p->segment[r] + v * LANES;
      for (int64_t i = 0; i < p->places; i++) {
        int64_t result = i / quarters, bucket = result * (NONE + 1) + i % quarters;
        if (!count[bucket]) continue;
#define CASE(V) \
  case V: add_kernels(V, count[bucket], list + bucket * s->out, g + result * s->out, part, apart, start + p->source[i]); break;
        switch (p->vectors - v < MOST ? p->vectors - v : MOST) { EACH(CASE) }
#undef CASE
      }
    }
}

/* As pens_forward; g [peer][batch][pooled height][pooled width][out] -> dw [peer][out][channel][tap], db [peer][out], and
   dx [peer][batch][height][width][channel] unless it is NULL. Returns 0 if memory is short. */
int pens_backward(const Shape *s, int64_t peers, const float *x, const int64_t *stride, const float *w, int64_t w_stride,
                  const float *g, const uint8_t *source, float *dx, float *dw, float *db) {
  Plan p;
  int ready = make_plan(s, &p);
  int64_t packed = p.segments * s->out * p.vectors * LANES, per_row = s->width * s->channels;
  float *kernel = numbers(packed), *sums = numbers(packed), *image = numbers(p.image), *back = numbers(p.image);
  int64_t *count = numbers(2 * s->out);
  int32_t *place = numbers(s->out * p.results), *counts = numbers(p.results * (NONE + 1));
  float *gradient = numbers(s->out * p.results);
  uint16_t *list = numbers(p.results * (NONE + 1) * s->out);
  ready = ready && kernel && sums && image && back && count && place && counts && gradient && list;
  if (ready) memset(image, 0, (size_t)(p.image + SLACK) * 4);
  for (int64_t k = 0; ready && k < peers; k++) {
    memset(sums, 0, (size_t)packed * 4);
    memset(db + k * s->out, 0, (size_t)s->out * 4);
    if (dx) pack_backward(s, &p, w + k * w_stride, kernel);
    for (int64_t n = 0; n < s->batch; n++) {
      int64_t sample = k * s->batch + n, at = sample * p.results * s->out;
      read_image(s, &p, x + k * stride[0] + n * stride[1], stride, image);
      list_patches(s, &p, g + at, source + at, count, place, gradient, db + k * s->out);
      kernel_gradient(s, &p, image, count, place, gradient, sums);
      if (!dx) continue;
      memset(back, 0, (size_t)(p.image + SLACK) * 4);
      list_channels(s, &p, g + at, source + at, counts, list);
      input_gradient(s, &p, g + at, counts, list, kernel, back);
      for (int64_t h = 0; h < s->height; h++)
        memcpy(dx + (sample * s->height + h) * per_row, back + (h + s->pad_h) * p.padded_w + s->pad_w * s->channels,
               (size_t)per_row * 4);
    }
    unpack_gradient(s, &p, sums, dw + k * s->out * p.depth);
  }
  void *all[] = {kernel, sums, image, back, count, place, counts, gradient, list};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  forget(&p);
  return ready;
}

/* One step of Adam. rows [peer][...] row_stride apart, the others [peer][size]; rate and root: one number per peer. */
void pens_adam(int64_t peers, int64_t size, float *rows, int64_t row_stride, const float *gradients, float *means, float *squares,
               const float *rate, const float *root, const uint8_t *active, float decay, float beta1, float beta2,
               float epsilon) {
  for (int64_t k = 0; k < peers; k++) {
    if (!active[k]) continue;
    float *restrict row = rows + k * row_stride, *restrict mean = means + k * size, *restrict square = squares + k * size;
    const float *restrict gradient = gradients + k * size;
    float divisor = root[k], speed = rate[k];
    for (int64_t i = 0; i < size; i++) {
      float slope = gradient[i] + decay * row[i];
      mean[i] += (slope - mean[i]) * (1 - beta1);
      square[i] = square[i] * beta2 + slope * slope * (1 - beta2);
      row[i] -= mean[i] / (sqrtf(square[i]) / divisor + epsilon) * speed;
    }
  }
}
