/* Trains, evaluates and predicts with numbers from in.bin, and writes all results to out.bin. */
#include <stdio.h>

#include "net.h"

#define STEPS 5

/* One number too many and a start one number in: the library asks for no more alignment. */
static number xs[NET_BATCH * NET_INPUT_SIZE + 1], ys[NET_BATCH * NET_OUTPUT_SIZE + 1];
static int ts[NET_BATCH * NET_TARGET_SIZE + 1];
static number ws[NET_BATCH + 1];
static FILE *in, *out;

#ifdef CALLER
static char memory[2 * NET_PARAMS_BYTES + 2 * NET_ARENA_BYTES + NET_ALIGN];
static void *params, *other_params, *arena, *other_arena;
#define PREDICT(x, y) net_predict_in(x, y, params, arena)
#define EVALUATE(x, t, w, l, a) net_evaluate_in(x, t, w, 0, l, a, params, arena)
#define TRAIN(x, t, w, l, a) net_train_step_in(x, t, w, 0, l, a, params, arena)

static void prepare(void)
{
    char *at = memory;

    while ((size_t)at % NET_ALIGN != 0)
        at++;
    params = at;
    other_params = at + NET_PARAMS_BYTES;
    arena = at + 2 * NET_PARAMS_BYTES;
    other_arena = at + 2 * NET_PARAMS_BYTES + NET_ARENA_BYTES;
    net_init(params);
    net_init(other_params);
}
#else
static void *params;
#define PREDICT(x, y) net_predict(x, y)
#define EVALUATE(x, t, w, l, a) net_evaluate(x, t, w, 0, l, a)
#define TRAIN(x, t, w, l, a) net_train_step(x, t, w, 0, l, a)

static void prepare(void)
{
    params = net_params();
}
#endif

static int get(void *to, size_t size, size_t count)
{
    return fread(to, size, count, in) == count;
}

static void put(const void *from, size_t size, size_t count)
{
    fwrite(from, size, count, out);
}

int main(void)
{
    number *x = xs + 1, *y = ys + 1, *w = ws + 1, loss = 0, accuracy = 0;
    int *t = ts + 1, step;

    in = fopen("in.bin", "rb");
    out = fopen(OUT, "wb");
    if (!in || !out || net_abi() != NET_ABI || !net_supported())
        return 2;
    if (net_params_bytes() != NET_PARAMS_BYTES || net_arena_bytes() != NET_ARENA_BYTES)
        return 3;
    prepare();
    for (step = 0; step < STEPS; step++) {
        if (!get(x, sizeof *x, NET_BATCH * NET_INPUT_SIZE) || !get(t, sizeof *t, NET_BATCH)
            || !get(w, sizeof *w, NET_BATCH))
            return 4;
        PREDICT(x, y);
        put(y, sizeof *y, NET_BATCH * NET_OUTPUT_SIZE);
        TRAIN(x, t, step % 2 ? w : 0, &loss, step ? &accuracy : 0);
        put(&loss, sizeof loss, 1);
        put(&accuracy, sizeof accuracy, 1);
        EVALUATE(x, t, w, &loss, &accuracy);
        put(&loss, sizeof loss, 1);
        put(&accuracy, sizeof accuracy, 1);
    }
#define STATE(offset, size, type) put((char *)params + (offset), sizeof(type), size);
    ALL_STATES
#ifdef CALLER
    net_predict_in(x, y, other_params, other_arena); /* has not learned anything */
#else
    net_predict(x, y);
#endif
    put(y, sizeof *y, NET_BATCH * NET_OUTPUT_SIZE);
    return fclose(out) ? 5 : 0;
}
