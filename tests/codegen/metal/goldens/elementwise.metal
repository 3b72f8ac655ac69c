#include <metal_stdlib>
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(256 * 1 * 1)]]
kernel void k0_greater_sqrt_where_f32_256_0_917c292c3d08dada(device const float *m0 [[buffer(0)]], device const float *m1 [[buffer(1)]], device float *m2 [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_ [[thread_position_in_threadgroup]]) {
  int v0 = (int)group.x;
  int v2 = (int)((uint)v0 * (uint)256);
  int v1 = (int)thread_.x;
  int v3 = (int)((uint)v2 + (uint)v1);
  bool v4 = v3 < 300;
  if (v4) {
  float v6 = m0[v3];
  bool v7 = v6 > (5.00000000e-01f);
  float v8 = m1[v3];
  float v9 = precise::sqrt(v8);
  float v10 = v7 ? v9 : (-1.00000000e-30f);
  m2[v3] = v10;
  }
}
