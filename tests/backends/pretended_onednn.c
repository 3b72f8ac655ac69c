/* A library with the names and arguments of oneDNN, as its header dnnl.h declares them. It checks what it gets, and
   computes on one thread alone. */
#include <stdint.h>

typedef int64_t dnnl_dim_t;
typedef struct {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
} dnnl_version_t;

static _Thread_local int threads = 7;
static dnnl_version_t version = {3, 0, 1, "pretended", RUNTIME, 0};

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
