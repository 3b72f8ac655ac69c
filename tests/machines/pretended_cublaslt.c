/* A library with the names, arguments and enumerations of cuBLASLt, as cublasLt.h of CUDA 12 and 13 declares them. It
   checks every call, and has a function of the test multiply. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { HANDLE = 0x4a4d, OPERATION, LAYOUT, PREFERENCE };

typedef struct { int kind, compute, scale; int32_t transposed[2]; } Operation;
typedef struct { int kind, type; uint64_t rows, columns; int64_t ld; } Layout;
typedef struct { int kind; uint64_t workspace; uint32_t alignments[4]; } Preference;
typedef struct { uint64_t data[8]; } Algorithm;
typedef struct { Algorithm algorithm; size_t workspace; int state; float waves; int reserved[4]; } Heuristic;
typedef struct { int64_t m, n, k; int type, result, compute; int transposed[2]; uint64_t a, b, d; int64_t lda, ldb, ldd;
                 uint64_t stream; } Product;

static int live, refuses;
static void (*multiply)(const Product *);

int pretended_live(void) { return live; }
void pretended_refuses(int how) { refuses = how; }
void pretended_multiply(void (*function)(const Product *)) { multiply = function; }

static void *made(int kind, size_t size) {
    int *object = calloc(1, size);
    *object = kind;
    live++;
    return object;
}
static int is(const void *object, int kind) { return object && *(const int *)object == kind; }
static int given_back(void *object, int kind) {
    if (!is(object, kind))
        return NOT_INITIALIZED;
    *(int *)object = 0;
    live--;
    free(object);
    return SUCCESS;
}

size_t cublasLtGetVersion(void) { return 131000; }
int cublasLtCreate(void **handle) { return *handle = made(HANDLE, sizeof(int)), SUCCESS; }
int cublasLtDestroy(void *handle) { return given_back(handle, HANDLE); }

int cublasLtMatmulDescCreate(Operation **operation, int compute, int scale) {
    if ((compute != 68 && compute != 77) || scale != 0) /* CUBLAS_COMPUTE_32F, 32F_FAST_TF32; CUDA_R_32F */
        return INVALID_VALUE;
    *operation = made(OPERATION, sizeof(Operation));
    (*operation)->compute = compute;
    return SUCCESS;
}
int cublasLtMatmulDescDestroy(void *operation) { return given_back(operation, OPERATION); }
int cublasLtMatmulDescSetAttribute(Operation *operation, int attribute, const void *value, size_t size) {
    int32_t how; /* TRANSA, TRANSB: 3, 4; CUBLAS_OP_N, T: 0, 1 */
    if (!is(operation, OPERATION) || (attribute != 3 && attribute != 4) || size != sizeof how)
        return INVALID_VALUE;
    memcpy(&how, value, size);
    operation->transposed[attribute - 3] = how;
    return how == 0 || how == 1 ? SUCCESS : INVALID_VALUE;
}

int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    if ((type != 0 && type != 2 && type != 14) || ld < (int64_t)rows || !rows || !columns)
        return INVALID_VALUE;
    *layout = made(LAYOUT, sizeof(Layout));
    (*layout)->type = type;
    (*layout)->rows = rows;
    (*layout)->columns = columns;
    (*layout)->ld = ld;
    return SUCCESS;
}
int cublasLtMatrixLayoutDestroy(void *layout) { return given_back(layout, LAYOUT); }

int cublasLtMatmulPreferenceCreate(Preference **preference) {
    *preference = made(PREFERENCE, sizeof(Preference));
    (*preference)->workspace = 1;
    for (int i = 0; i < 4; i++)
        (*preference)->alignments[i] = 256;
    return SUCCESS;
}
int cublasLtMatmulPreferenceDestroy(void *preference) { return given_back(preference, PREFERENCE); }
int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, size_t size) {
    if (!is(preference, PREFERENCE))
        return INVALID_VALUE;
    if (attribute == 1 && size == sizeof preference->workspace)
        return memcpy(&preference->workspace, value, size), SUCCESS;
    if (attribute >= 5 && attribute <= 8 && size == sizeof preference->alignments[0])
        return memcpy(&preference->alignments[attribute - 5], value, size), SUCCESS;
    return INVALID_VALUE;
}

static int sizes(const Operation *o, const Layout *a, const Layout *b, const Layout *c, const Layout *d, Product *p) {
    if (!is(o, OPERATION) || !is(a, LAYOUT) || !is(b, LAYOUT) || !is(c, LAYOUT) || c != d || a->type != b->type)
        return 0;
    p->m = o->transposed[0] ? a->columns : a->rows;
    p->k = o->transposed[0] ? a->rows : a->columns;
    p->n = o->transposed[1] ? b->rows : b->columns;
    p->type = a->type, p->result = c->type, p->compute = o->compute;
    p->transposed[0] = o->transposed[0], p->transposed[1] = o->transposed[1];
    p->lda = a->ld, p->ldb = b->ld, p->ldd = c->ld;
    uint64_t k = o->transposed[1] ? b->columns : b->rows;
    return k == (uint64_t)p->k && c->rows == (uint64_t)p->m && c->columns == (uint64_t)p->n &&
           (p->result == p->type || p->result == 0) && (p->type == 0 || p->compute == 68);
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, Operation *operation, Layout *a, Layout *b, Layout *c, Layout *d,
                                   Preference *preference, int most, Heuristic *results, int *count) {
    Product p;
    if (!is(handle, HANDLE) || !is(preference, PREFERENCE) || most != 1 || preference->workspace)
        return INVALID_VALUE;
    if (!sizes(operation, a, b, c, d, &p))
        return INVALID_VALUE;
    *count = refuses ? 0 : 1;
    if (refuses)
        return NOT_SUPPORTED;
    memset(results, 0, sizeof *results);
    for (int i = 0; i < 4; i++)
        results->algorithm.data[i] = preference->alignments[i];
    results->algorithm.data[7] = 0xa190;
    return SUCCESS;
}

int cublasLtMatmul(void *handle, Operation *operation, const float *alpha, uint64_t a, Layout *la, uint64_t b, Layout *lb,
                   const float *beta, uint64_t c, Layout *lc, uint64_t d, Layout *ld, const Algorithm *algorithm,
                   void *workspace, size_t bytes, uint64_t stream) {
    Product p;
    if (!is(handle, HANDLE) || *alpha != 1 || *beta != 0 || workspace || bytes || c != d || !stream)
        return INVALID_VALUE;
    if (algorithm->data[7] != 0xa190 || !sizes(operation, la, lb, lc, ld, &p))
        return INVALID_VALUE;
    uint64_t addresses[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (!algorithm->data[i] || addresses[i] % algorithm->data[i])
            return NOT_SUPPORTED;
    p.a = a, p.b = b, p.d = d, p.stream = stream;
    multiply(&p);
    return SUCCESS;
}
