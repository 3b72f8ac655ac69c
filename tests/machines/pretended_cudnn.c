/* A library with the names, arguments and enumerations of cuDNN 9, as cudnn_graph.h and cudnn_ops.h declare them. It checks
   every call, and has functions of the test convolve and copy. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, BAD_PARAM = 2000, NULL_POINTER = 2002, MISALIGNED = 2003, NOT_FINALIZED = 2004, SHAPES = 2008,
       ATTRIBUTE_TYPE = 2010, KIND = 2012, NOT_SUPPORTED = 3000 };
enum { HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, DOUBLE, POINTER, WAY, RULES, NOTE = 11, DESCRIPTOR = 15 };
enum { CONVOLUTION = 1, ENGINE, CONFIG, HEURISTICS, PLAN, FORWARD = 10, FILTER_GRADIENT, IMAGE_GRADIENT, GRAPH = 15, VARIANT, TENSOR };
enum { IS_HANDLE = 0x4d15, IS_DESCRIPTOR, IS_LEGACY };
enum { MOST = 8, SPACE = 4096, ENGINES = 5 };

typedef struct { int is; uint64_t stream; } Handle;
typedef struct { int name, type, count; char data[MOST * 8]; } Attribute;
typedef struct Descriptor { int is, kind, finalized, count, engine; struct Descriptor *graph; Attribute attributes[12]; } Descriptor;
typedef struct { int is, type, axes, extents[MOST], pitches[MOST]; } Legacy;
/* What may be set: of a descriptor, the name, type, fewest and most elements. All are required. */
static const struct { int kind, name, type, fewest, most; } RULES_OF[] = {
    {CONVOLUTION, 100, DATA_TYPE, 1, 1}, {CONVOLUTION, 101, WAY, 1, 1}, {CONVOLUTION, 102, INT64, 1, MOST},
    {CONVOLUTION, 103, INT64, 1, MOST}, {CONVOLUTION, 104, INT64, 1, MOST}, {CONVOLUTION, 105, INT64, 1, MOST},
    {CONVOLUTION, 106, INT64, 1, 1}, {HEURISTICS, 200, RULES, 1, 1}, {HEURISTICS, 201, DESCRIPTOR, 1, 1},
    {PLAN, 400, HANDLE, 1, 1}, {PLAN, 401, DESCRIPTOR, 1, 1}, {FORWARD, 700, FLOAT, 1, 1}, {FORWARD, 701, FLOAT, 1, 1},
    {FORWARD, 702, DESCRIPTOR, 1, 1}, {FORWARD, 703, DESCRIPTOR, 1, 1}, {FORWARD, 704, DESCRIPTOR, 1, 1},
    {FORWARD, 705, DESCRIPTOR, 1, 1}, {IMAGE_GRADIENT, 706, FLOAT, 1, 1}, {IMAGE_GRADIENT, 707, FLOAT, 1, 1},
    {IMAGE_GRADIENT, 708, DESCRIPTOR, 1, 1}, {IMAGE_GRADIENT, 709, DESCRIPTOR, 1, 1},
    {IMAGE_GRADIENT, 710, DESCRIPTOR, 1, 1}, {IMAGE_GRADIENT, 711, DESCRIPTOR, 1, 1}, {FILTER_GRADIENT, 712, FLOAT, 1, 1}, {FILTER_GRADIENT, 713, FLOAT, 1, 1},
    {FILTER_GRADIENT, 714, DESCRIPTOR, 1, 1}, {FILTER_GRADIENT, 715, DESCRIPTOR, 1, 1},
    {FILTER_GRADIENT, 716, DESCRIPTOR, 1, 1}, {FILTER_GRADIENT, 717, DESCRIPTOR, 1, 1}, {GRAPH, 800, HANDLE, 1, 1},
    {GRAPH, 801, DESCRIPTOR, 1, 1}, {TENSOR, 900, INT64, 1, 1}, {TENSOR, 901, DATA_TYPE, 1, 1},
    {TENSOR, 902, INT64, 1, MOST}, {TENSOR, 903, INT64, 1, MOST}, {TENSOR, 906, INT64, 1, 1},
    {VARIANT, 1000, INT64, 1, MOST}, {VARIANT, 1001, POINTER, 1, MOST}, {VARIANT, 1003, POINTER, 1, 1}};
/* The numerical notes of engines in the order of the rules: converts operands, differs from run to run, uses tensor
   cores, none, and Winograd's transforms of tiles of 4 x 4. */
static const int NOTES[ENGINES][2] = {{0, 1}, {4, -1}, {0, -1}, {-1, -1}, {5, 6}};

typedef struct { int operation, engine, mirrored, axes, type, result;
                 int64_t x[MOST], w[MOST], y[MOST], xs[MOST], ws[MOST], ys[MOST], strides[MOST], dilations[MOST], before[MOST],
                     after[MOST];
                 uint64_t px, pw, py, workspace, bytes, stream; } Convolution;
typedef struct { int axes, type; int64_t extents[MOST], from[MOST], to[MOST]; uint64_t source, target, stream; } Copy;

static int live, reads_any, refuses, refuses_layouts, failing = -1;
static void (*convolve)(const Convolution *);
static void (*copy)(const Copy *);

int pretended_live(void) { return live; }
void pretended_reads_any(int how) { reads_any = how; }
void pretended_refuses(int how) { refuses = how; }
void pretended_refuses_layouts(int how) { refuses_layouts = how; }
void pretended_failing(int engine) { failing = engine; }
void pretended_functions(void (*a)(const Convolution *), void (*b)(const Copy *)) { convolve = a, copy = b; }

static int is(const void *object, int what) { return object && *(const int *)object == what; }
static int of_kind(const Descriptor *d, int kind) { return is(d, IS_DESCRIPTOR) && d->kind == kind; }
static int given_back(void *object, int what) {
    if (!is(object, what))
        return BAD_PARAM;
    *(int *)object = 0;
    live--;
    free(object);
    return SUCCESS;
}
static void *made(int what, size_t size) {
    int *object = calloc(1, size);
    *object = what;
    live++;
    return object;
}
size_t cudnnGetVersion(void) { return 92801; }
int cudnnCreate(Handle **handle) { return *handle = made(IS_HANDLE, sizeof(Handle)), SUCCESS; }
int cudnnDestroy(void *handle) { return given_back(handle, IS_HANDLE); }
int cudnnSetStream(Handle *handle, uint64_t stream) {
    return is(handle, IS_HANDLE) ? (handle->stream = stream, SUCCESS) : BAD_PARAM;
}

int cudnnBackendCreateDescriptor(int kind, Descriptor **d) {
    int known = kind == ENGINE || kind == CONFIG;
    for (size_t k = 0; k < sizeof RULES_OF / sizeof *RULES_OF; k++)
        known |= RULES_OF[k].kind == kind;
    if (!known)
        return NOT_SUPPORTED;
    *d = made(IS_DESCRIPTOR, sizeof(Descriptor));
    (*d)->kind = kind;
    return SUCCESS;
}
int cudnnBackendDestroyDescriptor(void *d) { return given_back(d, IS_DESCRIPTOR); }

static int size_of(int type) { return type == DATA_TYPE || type == FLOAT || type == WAY || type == RULES || type == NOTE ? 4 : 8; }
static Attribute *attribute(Descriptor *d, int name) {
    for (int k = 0; k < d->count; k++)
        if (d->attributes[k].name == name)
            return &d->attributes[k];
    return 0;
}
int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t count, const void *elements) {
    if (!is(d, IS_DESCRIPTOR) || d->finalized || !elements)
        return BAD_PARAM;
    for (size_t k = 0; k < sizeof RULES_OF / sizeof *RULES_OF; k++)
        if (RULES_OF[k].kind == d->kind && RULES_OF[k].name == name) {
            if (RULES_OF[k].type != type)
                return ATTRIBUTE_TYPE;
            if (count < RULES_OF[k].fewest || count > RULES_OF[k].most || attribute(d, name))
                return BAD_PARAM;
            Attribute *a = &d->attributes[d->count++];
            a->name = name, a->type = type, a->count = count;
            memcpy(a->data, elements, count * size_of(type));
            for (int i = 0; type == DESCRIPTOR && i < count; i++)
                if (!is(((Descriptor **)a->data)[i], IS_DESCRIPTOR) || !((Descriptor **)a->data)[i]->finalized)
                    return NOT_FINALIZED;
            if (type == HANDLE && !is(*(Handle **)a->data, IS_HANDLE))
                return BAD_PARAM;
            return SUCCESS;
        }
    return KIND;
}
static int64_t *numbers(Descriptor *d, int name) { return (int64_t *)attribute(d, name)->data; }
static int number(Descriptor *d, int name) { return *(int *)attribute(d, name)->data; }
static Descriptor *part(Descriptor *d, int name) { return *(Descriptor **)attribute(d, name)->data; }
static int count_of(Descriptor *d, int name) { return attribute(d, name)->count; }

static int tensor_is_wrong(Descriptor *d) {
    int axes = count_of(d, 902), bytes = number(d, 901) == 0 ? 4 : 2;
    if (count_of(d, 903) != axes || numbers(d, 900)[0] % bytes)
        return BAD_PARAM;
    for (int k = 0; k < axes; k++)
        if (numbers(d, 902)[k] < 1 || numbers(d, 903)[k] < 1)
            return BAD_PARAM;
    return number(d, 901) == 0 || number(d, 901) == 2 || number(d, 901) == 9 ? SUCCESS : NOT_SUPPORTED;
}
static int first_of(Descriptor *d) { return d->kind == FORWARD ? 700 : d->kind == IMAGE_GRADIENT ? 706 : 712; }
/* The convolution, filters, images and results of an operation: those of the forward convolution. */
static void operands(Descriptor *d, Descriptor **of) {
    int first = first_of(d) + 2;
    for (int k = 0; k < 4; k++)
        of[k] = part(d, first + k);
}
static int filters_are_read(Descriptor *operation);
static int operation_is_wrong(Descriptor *d) {
    Descriptor *of[4]; /* the convolution, w, x, y */
    operands(d, of);
    if (!of_kind(of[0], CONVOLUTION) || !of_kind(of[1], TENSOR) || !of_kind(of[2], TENSOR) || !of_kind(of[3], TENSOR))
        return KIND;
    float alpha = *(float *)attribute(d, first_of(d))->data;
    float beta = *(float *)attribute(d, first_of(d) + 1)->data;
    int axes = numbers(of[0], 106)[0];
    int64_t *w = numbers(of[1], 902), *x = numbers(of[2], 902), *y = numbers(of[3], 902);
    if (alpha != 1 || beta != 0 || number(of[0], 100) != 0)
        return NOT_SUPPORTED;
    for (int k = 1; k < 4; k++)
        if (count_of(of[k], 902) != axes + 2)
            return SHAPES;
    if (x[0] != y[0] || x[1] != w[1] || y[1] != w[0])
        return SHAPES;
    for (int k = 0; k < axes; k++) {
        int64_t reach = (w[k + 2] - 1) * numbers(of[0], 102)[k] + 1;
        int64_t room = x[k + 2] + numbers(of[0], 105)[k] + numbers(of[0], 104)[k] - reach;
        if (room < 0 || room / numbers(of[0], 103)[k] + 1 != y[k + 2])
            return SHAPES;
    }
    return refuses_layouts && !filters_are_read(d) ? NOT_SUPPORTED : SUCCESS;
}
static int is_operation(Descriptor *d) { return d->kind >= FORWARD && d->kind <= IMAGE_GRADIENT; }
int cudnnBackendFinalize(Descriptor *d) {
    if (!is(d, IS_DESCRIPTOR) || d->finalized || d->kind == ENGINE || d->kind == CONFIG)
        return BAD_PARAM;
    for (size_t k = 0; k < sizeof RULES_OF / sizeof *RULES_OF; k++)
        if (RULES_OF[k].kind == d->kind && !attribute(d, RULES_OF[k].name))
            return BAD_PARAM;
    int wrong = SUCCESS;
    if (d->kind == TENSOR)
        wrong = tensor_is_wrong(d);
    if (d->kind == CONVOLUTION)
        for (int name = 102; name < 106; name++)
            if (count_of(d, name) != numbers(d, 106)[0])
                wrong = BAD_PARAM;
    if (is_operation(d))
        wrong = operation_is_wrong(d);
    if (d->kind == GRAPH && !is_operation(part(d, 801)))
        wrong = KIND;
    if (d->kind == HEURISTICS)
        wrong = !of_kind(part(d, 201), GRAPH) ? KIND : number(d, 200) != 3 ? NOT_SUPPORTED : SUCCESS;
    if (d->kind == PLAN)
        wrong = !of_kind(part(d, 401), CONFIG) ? KIND : part(d, 401)->engine == failing ? NOT_SUPPORTED : SUCCESS;
    if (d->kind == VARIANT && count_of(d, 1000) != count_of(d, 1001))
        wrong = BAD_PARAM;
    d->finalized = wrong == SUCCESS;
    return wrong;
}
/* Filters are dense, with the window before contiguous channels. */
static int filters_are_read(Descriptor *operation) {
    Descriptor *of[4];
    operands(operation, of);
    int64_t *extents = numbers(of[1], 902), *pitches = numbers(of[1], 903), size = extents[1], axes = count_of(of[1], 902);
    int dense = pitches[1] == 1;
    for (int k = axes - 1; k > 1; size *= extents[k--])
        dense &= pitches[k] == size;
    return reads_any || (dense && pitches[0] == size);
}
int cudnnBackendGetAttribute(Descriptor *d, int name, int type, int64_t most, int64_t *count, void *elements) {
    if (!is(d, IS_DESCRIPTOR) || !count || !elements)
        return NULL_POINTER;
    if (!d->finalized)
        return NOT_FINALIZED;
    Descriptor **parts = elements;
    if (d->kind == HEURISTICS && name == 202 && type == DESCRIPTOR) {
        if (refuses)
            return NOT_SUPPORTED;
        *count = filters_are_read(part(part(d, 201), 801)) ? ENGINES : 0;
        for (int k = 0; k < *count && k < most; k++) {
            if (!of_kind(parts[k], CONFIG) || parts[k]->finalized)
                return KIND;
            parts[k]->finalized = 1, parts[k]->engine = k, parts[k]->graph = part(d, 201);
        }
        return SUCCESS;
    }
    if (d->kind == CONFIG && name == 300 && type == DESCRIPTOR && most == 1) {
        if (!of_kind(parts[0], ENGINE))
            return KIND;
        parts[0]->finalized = 1, parts[0]->engine = d->engine;
        return *count = 1, SUCCESS;
    }
    if (d->kind == ENGINE && name == 1303 && type == NOTE) {
        *count = 0;
        for (int k = 0; k < 2; k++)
            if (NOTES[d->engine][k] >= 0)
                ((int *)elements)[(*count)++] = NOTES[d->engine][k];
        return SUCCESS;
    }
    if (d->kind == PLAN && name == 402 && type == INT64 && most == 1)
        return *(int64_t *)elements = SPACE, *count = 1, SUCCESS;
    return BAD_PARAM;
}

static void fill(Descriptor *tensor, int64_t *extents, int64_t *pitches) {
    memcpy(extents, numbers(tensor, 902), count_of(tensor, 902) * 8);
    memcpy(pitches, numbers(tensor, 903), count_of(tensor, 903) * 8);
}
int cudnnBackendExecute(Handle *handle, Descriptor *plan, Descriptor *variant) {
    if (!is(handle, IS_HANDLE) || !of_kind(plan, PLAN) || !of_kind(variant, VARIANT))
        return BAD_PARAM;
    if (!plan->finalized || !variant->finalized || *(Handle **)attribute(plan, 400)->data != handle)
        return NOT_FINALIZED;
    Descriptor *of[4], *operation = part(part(plan, 401)->graph, 801);
    operands(operation, of);
    uint64_t at[4] = {0}, *pointers = (uint64_t *)numbers(variant, 1001), space = numbers(variant, 1003)[0];
    for (int k = 1; k < 4; k++) {
        for (int i = 0; i < count_of(variant, 1000); i++)
            if (numbers(variant, 1000)[i] == numbers(of[k], 906)[0])
                at[k] = pointers[i];
        if (!at[k])
            return NULL_POINTER;
        if (at[k] % numbers(of[k], 900)[0])
            return MISALIGNED;
    }
    if (!space || space % 256)
        return MISALIGNED;
    Convolution c = {.operation = operation->kind, .engine = part(plan, 401)->engine, .mirrored = number(of[0], 101) == 0,
                     .axes = numbers(of[0], 106)[0], .type = number(of[operation->kind == FILTER_GRADIENT ? 3 : 1], 901)};
    c.result = number(of[operation->kind == FORWARD ? 3 : operation->kind == IMAGE_GRADIENT ? 2 : 1], 901);
    fill(of[1], c.w, c.ws), fill(of[2], c.x, c.xs), fill(of[3], c.y, c.ys);
    memcpy(c.dilations, numbers(of[0], 102), c.axes * 8);
    memcpy(c.strides, numbers(of[0], 103), c.axes * 8);
    memcpy(c.after, numbers(of[0], 104), c.axes * 8);
    memcpy(c.before, numbers(of[0], 105), c.axes * 8);
    c.pw = at[1], c.px = at[2], c.py = at[3], c.workspace = space, c.bytes = SPACE, c.stream = handle->stream;
    return convolve(&c), SUCCESS;
}

int cudnnCreateTensorDescriptor(Legacy **d) { return *d = made(IS_LEGACY, sizeof(Legacy)), SUCCESS; }
int cudnnDestroyTensorDescriptor(void *d) { return given_back(d, IS_LEGACY); }
int cudnnSetTensorNdDescriptor(Legacy *d, int type, int axes, const int *extents, const int *pitches) {
    if (!is(d, IS_LEGACY) || axes < 3 || axes > MOST)
        return BAD_PARAM;
    d->type = type, d->axes = axes;
    memcpy(d->extents, extents, axes * sizeof *extents);
    memcpy(d->pitches, pitches, axes * sizeof *pitches);
    return SUCCESS;
}
int cudnnTransformTensor(Handle *handle, const float *alpha, const Legacy *from, uint64_t source, const float *beta,
                         const Legacy *to, uint64_t target) {
    if (!is(handle, IS_HANDLE) || !is(from, IS_LEGACY) || !is(to, IS_LEGACY) || *alpha != 1 || *beta != 0 || !source || !target)
        return BAD_PARAM;
    if (from->axes != to->axes || from->type != to->type || memcmp(from->extents, to->extents, from->axes * sizeof(int)))
        return SHAPES;
    Copy c = {.axes = from->axes, .type = from->type};
    for (int k = 0; k < c.axes; k++)
        c.extents[k] = from->extents[k], c.from[k] = from->pitches[k], c.to[k] = to->pitches[k];
    c.source = source, c.target = target, c.stream = handle->stream;
    return copy(&c), SUCCESS;
}
