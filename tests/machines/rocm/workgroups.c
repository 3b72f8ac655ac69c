/* Runs kernels that are written for a GPU on the CPU: each thread of a workgroup is a coroutine,
   which gives way where it meets others. Workgroups run one after the other.

   What a kernel may ask of its machine is what AMD's instructions give: numbers, barriers, the
   exchange of 32 bits within a wave by the number of a lane, and products of matrices that a wave
   holds. Threads that meet in part only, which on a GPU hangs or gives whatever, end the launch with
   an error. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { READY, AT_BARRIER, AT_EXCHANGE, DONE };
enum { STACK = 128 * 1024, MOST = 1024 };

static struct thread {
  jmp_buf here;             /* where it gave way, if it has begun */
  int begun, state, turn;   /* turn tells one exchange from the next */
  uint32_t given[2];
  unsigned char matrices[2][3][32];
  int64_t at[3];
} threads[MOST];
static char *stacks;
static jmp_buf scheduler;
static int now, size, wave, wrong;  /* wrong: what zt_launch returns */
static int64_t group[3];
static void (*kernel)(void **);
static void **arguments;

static void wait_as(int state) {
  threads[now].state = state;
  if (!_setjmp(threads[now].here)) _longjmp(scheduler, 1);
}

/* A thread lives on from one workgroup to the next. */
static void begin(void) {
  for (;;) {
    kernel(arguments);
    wait_as(DONE);
  }
}

/* Contexts only begin a thread: to go from one to another they ask the system, which takes longer than
   all that a thread does between two meetings. Jumps do not. */
static void go_on(void) {
  static ucontext_t context;
  struct thread *t = &threads[now];
  if (_setjmp(scheduler)) return;
  if (t->begun) _longjmp(t->here, 1);
  t->begun = 1;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks + (size_t)now * STACK;
  context.uc_stack.ss_size = STACK;
  context.uc_link = 0;
  makecontext(&context, begin, 0);
  setcontext(&context);
}

/* Lets everyone from `first` go who waits in the same way; false if only some of them do. */
static int release(int first, int count, int state) {
  int waiting = 0;
  for (int k = first; k < first + count; k++) waiting += threads[k].state == state;
  if (waiting != count) return 0;
  for (int k = first; k < first + count; k++) threads[k].state = READY;
  return 1;
}

static int run_group(void) {
  for (int k = 0; k < size; k++) threads[k].state = READY, threads[k].turn = 0;
  for (;;) {
    int ran = 0, done = 0;
    for (now = 0; now < size; now++)
      if (threads[now].state == READY) {
        ran = 1;
        go_on();
      }
    for (int k = 0; k < size; k++) done += threads[k].state == DONE;
    if (done == size) return wrong;
    if (ran) {
      int freed = release(0, size, AT_BARRIER);
      for (int k = 0; k < size; k += wave)
        freed |= release(k, size - k < wave ? size - k : wave, AT_EXCHANGE);
      if (freed) continue;
    }
    for (int k = 0; k < MOST; k++) threads[k].begun = 0;  /* some are stuck in the middle */
    return 1;
  }
}

/* 0, or 1 where threads met in part only, 2 for too large a workgroup, 3 where threads disagree about
   a matrix, 4 where a number has more bits than its instruction takes. */
int zt_launch(void (*what)(void **), void **given, const int64_t *grid, const int64_t *block,
              int lanes) {
  if (!stacks)
    stacks = mmap(0, (size_t)STACK * MOST, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  kernel = what, arguments = given, wave = lanes, wrong = 0;
  size = (int)(block[0] * block[1] * block[2]);
  if (size > MOST) return 2;
  for (int k = 0; k < size; k++) {
    threads[k].at[0] = k % block[0];
    threads[k].at[1] = k / block[0] % block[1];
    threads[k].at[2] = k / (block[0] * block[1]);
  }
  for (group[2] = 0; group[2] < grid[2]; group[2]++)
    for (group[1] = 0; group[1] < grid[1]; group[1]++)
      for (group[0] = 0; group[0] < grid[0]; group[0]++)
      {
        int code = run_group();
        if (code) return code;
      }
  return 0;
}

int zt_workgroup_id_x(void) { return (int)group[0]; }
int zt_workgroup_id_y(void) { return (int)group[1]; }
int zt_workgroup_id_z(void) { return (int)group[2]; }
int zt_workitem_id_x(void) { return (int)threads[now].at[0]; }
int zt_workitem_id_y(void) { return (int)threads[now].at[1]; }
int zt_workitem_id_z(void) { return (int)threads[now].at[2]; }

void zt_s_barrier(void) { wait_as(AT_BARRIER); }

/* Two slots, since a thread may be one exchange ahead of the others, and no more. */
static uint32_t exchange(uint32_t x, int lane) {
  struct thread *me = &threads[now];
  int first = now / wave * wave, turn = me->turn++ & 1;
  me->given[turn] = x;
  wait_as(AT_EXCHANGE);
  if (first + lane >= size) {
    wrong = 1;
    return 0xDEADBEEF;
  }
  return threads[first + lane].given[turn];
}

uint32_t zt_ds_bpermute(uint32_t address, uint32_t x) {
  return exchange(x, (int)(address >> 2) % wave);
}

uint32_t zt_ds_swizzle(uint32_t x, uint32_t pattern) {
  int lane = now % wave, low = lane & 31;
  low = ((low & pattern & 31) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31);
  return exchange(x, (lane & ~31) | low);
}

uint32_t zt_mbcnt_lo(uint32_t mask, uint32_t x) {
  int lane = now % wave;
  return x + __builtin_popcount(lane < 32 ? mask & ((1u << lane) - 1) : mask);
}

uint32_t zt_mbcnt_hi(uint32_t mask, uint32_t x) {
  int lane = now % wave - 32;
  return x + (lane > 0 ? __builtin_popcount(mask & ((1u << lane) - 1)) : 0);
}

/* -- matrices: where elements lie is written in tensor.py ------------------------------------------ */

enum { F16, BF16, F32, F64, XF32 };

struct instruction {
  int wave, of, k, given, got;   /* elements of a (and b), and of c, in a lane */
  const int32_t *a, *b, *c;      /* which element each lane has at each place, row by row */
};
static const struct instruction *instructions;
void zt_matrices(const struct instruction *rows) { instructions = rows; }

static double number(int of, const unsigned char *from, int i) {
  uint16_t h;
  uint32_t w;
  float f;
  double d;
  switch (of) {
  case F16:
    memcpy(&h, from + 2 * i, 2);
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    d = exponent == 31 ? (mantissa ? NAN : INFINITY)
                       : ldexp(exponent ? 1024 + mantissa : mantissa, (exponent ? exponent : 1) - 25);
    return h >> 15 ? -d : d;
  case BF16:
    memcpy(&h, from + 2 * i, 2);
    w = (uint32_t)h << 16;
    break;
  case F64:
    memcpy(&d, from + 8 * i, 8);
    return d;
  default:
    memcpy(&w, from + 4 * i, 4);
  }
  memcpy(&f, &w, 4);
  if (of == XF32 && (w & 0x1FFF) && f == f) wrong = 4;
  return f;
}

/* A matrix out of the registers of a wave; where two lanes have an element, they must agree. */
static void collect(double *into, const struct instruction *it, int which, int turn, int first) {
  const int32_t *table = which ? it->b : it->a;
  unsigned char seen[256] = {0};
  for (int lane = 0; lane < wave; lane++)
    for (int i = 0; i < it->given; i++) {
      int at = table[lane * it->given + i];
      double x = number(it->of, threads[first + lane].matrices[turn][which], i);
      if (seen[at] && memcmp(&into[at], &x, sizeof x)) wrong = 3;
      into[at] = x, seen[at] = 1;
    }
}

/* c += a b. Threads of a wave go on one after the other: the first collects for all. */
void zt_matrix(int which, const void *a, const void *b, void *c) {
  static double left[256], right[256];
  const struct instruction *it = &instructions[which];
  struct thread *me = &threads[now];
  int first = now / wave * wave, lane = now - first, turn = me->turn++ & 1;
  int bytes = it->of == F64 ? 8 : 4;
  const void *from[3] = {a, b, c};
  for (int k = 0; k < 3; k++) memcpy(me->matrices[turn][k], from[k], 32);
  wait_as(AT_EXCHANGE);
  if (it->wave != wave || first + wave > size) {
    wrong = 1;
    return;
  }
  if (!lane) {
    collect(left, it, 0, turn, first);
    collect(right, it, 1, turn, first);
  }
  for (int i = 0; i < it->got; i++) {
    int at = it->c[lane * it->got + i], row = at / 16, column = at % 16;
    double sum = 0;
    for (int k = 0; k < it->k; k++) sum += left[row * it->k + k] * right[k * 16 + column];
    sum += number(bytes == 8 ? F64 : F32, me->matrices[turn][2], i);
    float rounded = (float)sum;
    memcpy((char *)c + bytes * i, bytes == 8 ? (void *)&sum : (void *)&rounded, bytes);
  }
}
