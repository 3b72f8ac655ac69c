/* A library with the names and arguments of oneDNN, as its header dnnl.h declares them. It checks what it gets, and
   computes on one thread alone. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t dnnl_dim_t;
typedef struct {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
} dnnl_version_t;

static _Thread_local int threads = 7;
static dnnl_version_t version = {MAJOR, 0, 1, "pretended", RUNTIME, 0};

const dnnl_version_t *dnnl_version(void) { return &version; }
int dnnl_get_effective_cpu_isa(void) { return 0xe7; }
int omp_get_max_threads(void) { return threads; }
void omp_set_num_threads(int count) { threads = count; }

int dnnl_sgemm(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha, const float *a,
               dnnl_dim_t lda, const float *b, dnnl_dim_t ldb, float beta, float *c, dnnl_dim_t ldc) {
    int across = transa == 'T', down = transb == 'T';
    if ((transa != 'N' && !across) || (transb != 'N' && !down) || threads != 1 || alpha != 1.0f || beta != 0.0f)
        return 2;
    if (m < 1 || n < 1 || k < 1 || lda < (across ? m : k) || ldb < (down ? k : n) || ldc < n)
        return 2;
    for (dnnl_dim_t i = 0; i < m; i++)
        for (dnnl_dim_t j = 0; j < n; j++) {
            float sum = 0;
            for (dnnl_dim_t s = 0; s < k; s++)
                sum += a[across ? s * lda + i : i * lda + s] * b[down ? j * ldb + s : s * ldb + j];
            c[i * ldc + j] = sum;
        }
    return 0;
}

/* Convolutions: objects know their kind, and errors are those of dnnl_status_t. Filters of any layout lie in a layout
   of this library, with the last axis first. */
enum { SUCCESS = 0, INVALID_ARGUMENTS = 2, UNIMPLEMENTED = 3 };
enum { ENGINE = 0xd00, STREAM, LAYOUT, MEMORY, ATTRIBUTES, DESCRIPTION, PRIMITIVE };
typedef struct { int kind, axes, any; int64_t extents[6], strides[6]; } Layout;
typedef struct { int kind; Layout layout; float *at; int owned; } Memory;
typedef struct { int kind, scratchpad; } Attributes;
typedef struct { int kind, reorders; Layout x, w, y, scratchpad; int has_bias, axes;
                 int64_t strides[3], dilations[3], low[3]; } Description;
typedef struct { int argument; Memory *memory; } Argument;

static int live;
int pretended_live(void) { return live; }

static void *made(int kind, size_t size) {
    int *object = calloc(1, size);
    *object = kind;
    live++;
    return object;
}
static int is(const void *object, int kind) { return object && *(const int *)object == kind; }
static int given_back(void *object, int kind) {
    if (!is(object, kind))
        return INVALID_ARGUMENTS;
    if (kind == MEMORY && ((Memory *)object)->owned)
        free(((Memory *)object)->at);
    *(int *)object = 0;
    live--;
    free(object);
    return SUCCESS;
}

int dnnl_engine_create(int **engine, int kind, size_t index) {
    if (kind != 1 || index)
        return INVALID_ARGUMENTS;
    return *engine = made(ENGINE, sizeof(int)), SUCCESS;
}
int dnnl_engine_destroy(void *engine) { return given_back(engine, ENGINE); }
int dnnl_stream_create(int **stream, void *engine, unsigned flags) {
    if (!is(engine, ENGINE) || flags != 1)
        return INVALID_ARGUMENTS;
    return *stream = made(STREAM, sizeof(int)), SUCCESS;
}
int dnnl_stream_destroy(void *stream) { return given_back(stream, STREAM); }

static void dense(Layout *layout) {
    int64_t step = 1;
    for (int k = 0; k < layout->axes; step *= layout->extents[k++])
        layout->strides[k] = step;
}
int dnnl_memory_desc_create_with_strides(Layout **layout, int axes, const int64_t *extents, int type,
                                         const int64_t *strides) {
    if (axes < 1 || axes > 5 || type != 3)
        return INVALID_ARGUMENTS;
    *layout = made(LAYOUT, sizeof(Layout));
    (*layout)->axes = axes;
    memcpy((*layout)->extents, extents, axes * sizeof *extents);
    memcpy((*layout)->strides, strides, axes * sizeof *strides);
    return SUCCESS;
}
int dnnl_memory_desc_create_with_tag(Layout **layout, int axes, const int64_t *extents, int type, int tag) {
    int64_t strides[6] = {0};
    if (tag != 1 || dnnl_memory_desc_create_with_strides(layout, axes, extents, type, strides))
        return INVALID_ARGUMENTS;
    (*layout)->any = 1;
    return SUCCESS;
}
int dnnl_memory_desc_destroy(void *layout) { return given_back(layout, LAYOUT); }

int dnnl_memory_create(Memory **memory, const Layout *layout, void *engine, void *at) {
    if (!layout || layout->any || !is(engine, ENGINE))
        return INVALID_ARGUMENTS;
    *memory = made(MEMORY, sizeof(Memory));
    (*memory)->layout = *layout;
    (*memory)->owned = at == (void *)-1;
    int64_t size = 1;
    for (int k = 0; k < layout->axes; k++)
        size *= layout->extents[k];
    (*memory)->at = (*memory)->owned ? calloc(size, sizeof(float)) : at;
    return SUCCESS;
}
int dnnl_memory_destroy(void *memory) { return given_back(memory, MEMORY); }
int dnnl_memory_set_data_handle(Memory *memory, float *at) {
    if (!is(memory, MEMORY) || memory->owned)
        return INVALID_ARGUMENTS;
    return memory->at = at, SUCCESS;
}

int dnnl_primitive_attr_create(Attributes **attributes) {
    return *attributes = made(ATTRIBUTES, sizeof(Attributes)), SUCCESS;
}
int dnnl_primitive_attr_destroy(void *attributes) { return given_back(attributes, ATTRIBUTES); }
int dnnl_primitive_attr_set_scratchpad_mode(Attributes *attributes, int mode) {
    if (!is(attributes, ATTRIBUTES) || (mode != 0 && mode != 1))
        return INVALID_ARGUMENTS;
    return attributes->scratchpad = mode, SUCCESS;
}

int dnnl_convolution_forward_primitive_desc_create(
        Description **description, void *engine, int use, int way, const Layout *x, const Layout *w, const Layout *bias,
        const Layout *y, const int64_t *strides, const int64_t *dilations, const int64_t *low, const int64_t *high,
        const Attributes *attributes) {
    if (!is(engine, ENGINE) || use != 96 || way != 1 || !is(x, LAYOUT) || !is(w, LAYOUT) || !is(y, LAYOUT) || !w->any)
        return INVALID_ARGUMENTS;
    if (!is(attributes, ATTRIBUTES) || attributes->scratchpad != 1 || threads != 1 || x->axes != w->axes ||
        x->axes != y->axes || x->axes < 3)
        return INVALID_ARGUMENTS;
    if (x->extents[0] != y->extents[0] || x->extents[1] != w->extents[1] || w->extents[0] != y->extents[1])
        return INVALID_ARGUMENTS;
    if (bias && (!is(bias, LAYOUT) || bias->axes != 1 || bias->extents[0] != y->extents[1]))
        return INVALID_ARGUMENTS;
    if (REFUSES)
        return UNIMPLEMENTED;
    Description *d = *description = made(DESCRIPTION, sizeof(Description));
    d->axes = x->axes - 2, d->has_bias = bias != 0, d->x = *x, d->w = *w, d->y = *y;
    for (int k = 0; k < d->axes; k++) {
        int64_t window = (w->extents[k + 2] - 1) * (dilations[k] + 1) + 1;
        if ((x->extents[k + 2] + low[k] + high[k] - window) / strides[k] + 1 != y->extents[k + 2])
            return given_back(d, DESCRIPTION), INVALID_ARGUMENTS;
        d->strides[k] = strides[k], d->dilations[k] = dilations[k] + 1, d->low[k] = low[k];
    }
    d->w.any = 0;
    dense(&d->w);
    d->scratchpad = (Layout){LAYOUT, 1, 0, {16}, {1}};
    return SUCCESS;
}
int dnnl_reorder_primitive_desc_create(Description **description, const Layout *from, void *engine, const Layout *to,
                                       void *engine_to, const void *attributes) {
    if (!is(engine, ENGINE) || engine != engine_to || attributes || from->axes != to->axes || from->any || to->any)
        return INVALID_ARGUMENTS;
    if (memcmp(from->extents, to->extents, from->axes * sizeof *from->extents))
        return INVALID_ARGUMENTS;
    *description = made(DESCRIPTION, sizeof(Description));
    (*description)->reorders = 1, (*description)->x = *from, (*description)->y = *to;
    return SUCCESS;
}
const Layout *dnnl_primitive_desc_query_md(const Description *d, int which, int index) {
    if (!is(d, DESCRIPTION) || d->reorders || index)
        return 0;
    return which == 131 ? &d->w : which == 136 ? &d->scratchpad : 0;
}
int dnnl_primitive_desc_destroy(void *description) { return given_back(description, DESCRIPTION); }
int dnnl_primitive_create(Description **primitive, const Description *description) {
    if (!is(description, DESCRIPTION))
        return INVALID_ARGUMENTS;
    *primitive = made(PRIMITIVE, sizeof(Description));
    **primitive = *description;
    (*primitive)->kind = PRIMITIVE;
    return SUCCESS;
}
int dnnl_primitive_destroy(void *primitive) { return given_back(primitive, PRIMITIVE); }

static Memory *of(int count, const Argument *arguments, int argument, const Layout *layout) {
    for (int k = 0; k < count; k++)
        if (arguments[k].argument == argument && is(arguments[k].memory, MEMORY) && arguments[k].memory->at &&
            (!layout || (!memcmp(arguments[k].memory->layout.extents, layout->extents, layout->axes * 8) &&
                         !memcmp(arguments[k].memory->layout.strides, layout->strides, layout->axes * 8))))
            return arguments[k].memory;
    return 0;
}
/* The next index in row-major order; 0 after the last one. */
static int next(int64_t *index, const int64_t *extents, int axes) {
    for (int k = axes; k--; index[k] = 0)
        if (++index[k] < extents[k])
            return 1;
    return 0;
}
static int64_t place(const int64_t *index, const Layout *layout) {
    int64_t sum = 0;
    for (int k = 0; k < layout->axes; k++)
        sum += index[k] * layout->strides[k];
    return sum;
}
int dnnl_primitive_execute(const Description *d, void *stream, int count, const Argument *arguments) {
    if (!is(d, PRIMITIVE) || !is(stream, STREAM) || threads != 1)
        return INVALID_ARGUMENTS;
    Memory *x = of(count, arguments, 1, &d->x), *y = of(count, arguments, 17, &d->y);
    int64_t at[6] = {0};
    if (!x || !y)
        return INVALID_ARGUMENTS;
    if (d->reorders) {
        do
            y->at[place(at, &d->y)] = x->at[place(at, &d->x)];
        while (next(at, d->x.extents, d->x.axes));
        return SUCCESS;
    }
    Memory *w = of(count, arguments, 33, &d->w), *bias = of(count, arguments, 41, 0);
    if (!w || !of(count, arguments, 80, &d->scratchpad) || !bias != !d->has_bias || count != 4 + d->has_bias)
        return INVALID_ARGUMENTS;
    do {
        float sum = bias ? bias->at[at[1]] : 0;
        int64_t tap[6] = {at[1]}, window[6] = {1, d->w.extents[1]};
        memcpy(window + 2, d->w.extents + 2, d->axes * 8);
        int64_t inner[6] = {0};
        do {
            int64_t from[6] = {at[0], inner[1]}, inside = 1;
            tap[1] = inner[1];
            for (int k = 0; k < d->axes; k++) {
                tap[k + 2] = inner[k + 2];
                from[k + 2] = at[k + 2] * d->strides[k] + inner[k + 2] * d->dilations[k] - d->low[k];
                inside &= from[k + 2] >= 0 && from[k + 2] < d->x.extents[k + 2];
            }
            if (inside)
                sum += x->at[place(from, &d->x)] * w->at[place(tap, &d->w)];
        } while (next(inner, window, d->w.axes));
        y->at[place(at, &d->y)] = sum;
    } while (next(at, d->y.extents, d->y.axes));
    return SUCCESS;
}
