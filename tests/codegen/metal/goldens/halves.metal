#include <metal_stdlib>
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(8 * 1 * 1)]]
kernel void k0_cast_mul_f32_8_0_bede53efc9982dd5(device const float *m0 [[buffer(0)]], device float *m1 [[buffer(1)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_ [[thread_position_in_threadgroup]]) {
  int v0 = (int)group.x;
  int v2 = (int)((uint)v0 * (uint)8);
  int v1 = (int)thread_.x;
  int v3 = (int)((uint)v2 + (uint)v1);
  float v4 = m0[v3];
  half v5 = (half)v4;
  float v11 = (float)v5;
  float v12 = v11 * (2.00000000e+00f);
  half v6 = (half)v12;
  float v7 = (float)v6;
  m1[v3] = v7;
}
