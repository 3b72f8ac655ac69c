#include <metal_stdlib>
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(256 * 1 * 1)]]
kernel void k0_max_sum_mul_0_710c355408ca7d4d(device const float *m0 [[buffer(0)]], device float *m1 [[buffer(1)]], device float *m2 [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_ [[thread_position_in_threadgroup]]) {
  threadgroup float m3[256];
  float x7;
  float x39;
  int v0 = (int)group.x;
  int v4 = (int)((uint)v0 * (uint)4);
  int v1 = (int)thread_.x;
  int v2 = v1 / 64;
  int v3 = v1 % 64;
  int v5 = (int)((uint)v4 + (uint)v2);
  bool v6 = v5 < 6;
  x7 = as_type<float>(4286578688u);
  if (v6) {
  int v11 = (int)((uint)v5 * (uint)100);
  for (int v10 = v3; v10 < 100; v10 += 64) {
  int v12 = (int)((uint)v10 + (uint)v11);
  float v13 = m0[v12];
  float v14 = x7;
  float v15 = v14 > v13 || v14 != v14 ? v14 : v13;
  x7 = v15;
  }
  }
  float v19 = x7;
  float v20 = simd_shuffle_xor(v19, (ushort)16);
  float v21 = v19 > v20 || v19 != v19 ? v19 : v20;
  float v22 = simd_shuffle_xor(v21, (ushort)8);
  float v23 = v21 > v22 || v21 != v21 ? v21 : v22;
  float v24 = simd_shuffle_xor(v23, (ushort)4);
  float v25 = v23 > v24 || v23 != v23 ? v23 : v24;
  float v26 = simd_shuffle_xor(v25, (ushort)2);
  float v27 = v25 > v26 || v25 != v25 ? v25 : v26;
  float v28 = simd_shuffle_xor(v27, (ushort)1);
  float v29 = v27 > v28 || v27 != v27 ? v27 : v28;
  m3[v1] = v29;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  int v32 = (int)((uint)v2 * (uint)64);
  int v33 = (int)((uint)v32 + (uint)0);
  float v34 = m3[v33];
  int v35 = (int)((uint)v32 + (uint)32);
  float v36 = m3[v35];
  float v37 = v34 > v36 || v34 != v34 ? v34 : v36;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  x39 = (0.00000000e+00f);
  if (v6) {
  int v43 = (int)((uint)v5 * (uint)100);
  for (int v42 = v3; v42 < 100; v42 += 64) {
  int v44 = (int)((uint)v42 + (uint)v43);
  float v45 = m0[v44];
  float v46 = v45 - v37;
  float v81 = (8.88000031e+01f) < v46 ? (8.88000031e+01f) : v46;
  float v82 = (-8.74000015e+01f) > v81 ? (-8.74000015e+01f) : v81;
  float v83 = v82 * (1.44269502e+00f);
  float v84 = rint(v83);
  float v85 = fma(v84, (-6.93145752e-01f), v82);
  float v86 = fma(v84, (-1.42860677e-06f), v85);
  float v87 = fma(v86, (2.76757567e-03f), (1.67346373e-02f));
  float v88 = fma(v87, v86, (8.33354816e-02f));
  float v89 = fma(v88, v86, (3.33330750e-01f));
  float v90 = fma(v89, v86, (9.99999940e-01f));
  float v91 = fma(v90, v86, (2.00000000e+00f));
  float v92 = fma(v91, v86, (2.00000000e+00f));
  float v93 = v84 + (1.25830380e+07f);
  int v94 = as_type<int>(v93);
  int v95 = (int)((uint)v94 << 23);
  float v96 = as_type<float>(v95);
  float v97 = v92 * v96;
  m2[v44] = v97;
  float v49 = x39;
  float v50 = v49 + v97;
  x39 = v50;
  }
  }
  float v54 = x39;
  float v55 = simd_shuffle_xor(v54, (ushort)16);
  float v56 = v54 + v55;
  float v57 = simd_shuffle_xor(v56, (ushort)8);
  float v58 = v56 + v57;
  float v59 = simd_shuffle_xor(v58, (ushort)4);
  float v60 = v58 + v59;
  float v61 = simd_shuffle_xor(v60, (ushort)2);
  float v62 = v60 + v61;
  float v63 = simd_shuffle_xor(v62, (ushort)1);
  float v64 = v62 + v63;
  m3[v1] = v64;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  float v67 = m3[v33];
  float v68 = m3[v35];
  float v69 = v67 + v68;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  if (v6) {
  float v72 = (1.00000000e+00f) / v69;
  int v74 = (int)((uint)v5 * (uint)100);
  for (int v73 = v3; v73 < 100; v73 += 64) {
  int v75 = (int)((uint)v73 + (uint)v74);
  float v76 = m2[v75];
  float v77 = v76 * v72;
  m1[v75] = v77;
  }
  }
}
