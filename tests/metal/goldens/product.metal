#include <metal_stdlib>
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(64 * 1 * 1)]]
kernel void k0_matmul_where_0(device const float *m0 [[buffer(0)]], device const float *m1 [[buffer(1)]], device float *m2 [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_ [[thread_position_in_threadgroup]]) {
  threadgroup float m3[96];
  threadgroup float m4[64];
  threadgroup float m5[64];
  float x8;
  int v0 = (int)group.x;
  int v2 = v0 / 25;
  int v3 = v0 % 25;
  int v4 = v3 / 5;
  int v5 = (int)((uint)v4 * (uint)8);
  int v6 = v3 % 5;
  int v7 = (int)((uint)v6 * (uint)8);
  int v1 = (int)thread_.x;
  x8 = (0.00000000e+00f);
  int v10 = v1 / 8;
  int v11 = (int)((uint)v10 * (uint)1);
  int v12 = v1 % 8;
  int v13 = (int)((uint)v12 * (uint)1);
  int v15 = (int)((uint)v1 + (uint)0);
  int v16 = v15 % 8;
  int v17 = (int)((uint)v16 * (uint)1);
  int v18 = v15 / 8;
  int v19 = (int)((uint)v5 + (uint)v18);
  bool v21 = v19 < 33;
  int v24 = (int)((uint)v19 * (uint)20);
  int v27 = (int)((uint)v17 * (uint)12);
  int v28 = (int)((uint)v27 + (uint)v18);
  int v30 = (int)((uint)v7 + (uint)v17);
  int v36 = (int)((uint)v18 * (uint)8);
  int v37 = (int)((uint)v36 + (uint)v17);
  for (int v14 = 0; v14 < 20; v14 += 8) {
  int v20 = (int)((uint)v14 + (uint)v17);
  bool v22 = v20 < 20;
  bool v23 = (bool)(v21 & v22);
  int v25 = (int)((uint)v20 + (uint)v24);
  float v26 = v23 ? m0[v25] : (float)0;
  m3[v28] = v26;
  int v31 = (int)((uint)v14 + (uint)v18);
  bool v32 = v31 < 20;
  int v33 = (int)((uint)v31 * (uint)40);
  int v34 = (int)((uint)v33 + (uint)v30);
  float v35 = v32 ? m1[v34] : (float)0;
  m4[v37] = v35;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  for (int v40 = 0; v40 < 8; v40 += 1) {
  int v41 = (int)((uint)v40 * (uint)12);
  int v42 = (int)((uint)v41 + (uint)v11);
  int v43 = (int)((uint)v40 * (uint)8);
  int v44 = (int)((uint)v43 + (uint)v13);
  float v45 = m3[v42];
  float v46 = m4[v44];
  float v47 = x8;
  float v48 = fma(v45, v46, v47);
  x8 = v48;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
  int v53 = (int)((uint)v11 * (uint)8);
  int v54 = (int)((uint)v53 + (uint)v13);
  float v55 = x8;
  m5[v54] = v55;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  for (int v58 = v1; v58 < 64; v58 += 64) {
  float v59 = m5[v58];
  int v60 = v58 / 8;
  int v61 = (int)((uint)v5 + (uint)v60);
  int v62 = v58 % 8;
  int v63 = (int)((uint)v7 + (uint)v62);
  bool v64 = v61 < 33;
  if (v64) {
  bool v66 = v59 <= (0.00000000e+00f);
  float v67 = v66 ? (0.00000000e+00f) : v59;
  int v68 = (int)((uint)v61 * (uint)40);
  int v69 = (int)((uint)v68 + (uint)v63);
  m2[v69] = v67;
  }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
}
