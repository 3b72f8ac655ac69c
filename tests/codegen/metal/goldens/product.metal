#include <metal_stdlib>
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(64 * 1 * 1)]]
kernel void k0_matmul_where_f32_8x8_0_ba030fe655cab4ee(device const float *m0 [[buffer(0)]], device const float *m1 [[buffer(1)]], device float *m2 [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_ [[thread_position_in_threadgroup]]) {
  threadgroup float m3[96];
  threadgroup float m4[64];
  threadgroup float m5[64];
  float x8;
  int v0 = (int)group.x;
  int v105 = (int)((uint)v0 * (uint)13);
  int v4 = (int)(v105 >> 6);
  int v5 = (int)((uint)v4 * (uint)8);
  int v107 = (int)((uint)v0 * (uint)13);
  int v108 = (int)(v107 >> 6);
  int v109 = (int)((uint)v108 * (uint)5);
  int v6 = (int)((uint)v0 - (uint)v109);
  int v7 = (int)((uint)v6 * (uint)8);
  int v1 = (int)thread_.x;
  x8 = (0.00000000e+00f);
  int v10 = (int)(v1 >> 3);
  int v11 = (int)((uint)v10 * (uint)1);
  int v12 = (int)(v1 & 7);
  int v13 = (int)((uint)v12 * (uint)1);
  int v15 = (int)((uint)v1 + (uint)0);
  int v16 = (int)(v15 & 1);
  int v17 = (int)((uint)v16 * (uint)4);
  int v18 = (int)(v15 >> 1);
  bool v19 = v15 < 16;
  for (int v14 = 0; v14 < 20; v14 += 8) {
  if (v19) {
  int v21 = (int)((uint)v5 + (uint)v18);
  int v22 = (int)((uint)v14 + (uint)v17);
  bool v23 = v21 < 33;
  bool v24 = v22 < 20;
  bool v25 = (bool)(v23 & v24);
  int v26 = (int)((uint)v21 * (uint)20);
  int v27 = (int)((uint)v22 + (uint)v26);
  int v28 = v25 ? v27 : 0;
  float4 v29 = float4(*(device const packed_float4 *)&m0[v28]);
  float v30 = v29[0];
  float v31 = v29[1];
  float v32 = v29[2];
  float v33 = v29[3];
  float v34 = v25 ? v30 : (0.00000000e+00f);
  float v35 = v25 ? v31 : (0.00000000e+00f);
  float v36 = v25 ? v32 : (0.00000000e+00f);
  float v37 = v25 ? v33 : (0.00000000e+00f);
  int v38 = (int)((uint)v17 * (uint)12);
  int v39 = (int)((uint)v38 + (uint)v18);
  m3[v39] = v34;
  m3[v39 + 12] = v35;
  m3[v39 + 24] = v36;
  m3[v39 + 36] = v37;
  }
  if (v19) {
  int v46 = (int)((uint)v7 + (uint)v17);
  int v47 = (int)((uint)v14 + (uint)v18);
  bool v48 = v47 < 20;
  int v49 = (int)((uint)v47 * (uint)40);
  int v50 = (int)((uint)v49 + (uint)v46);
  int v51 = v48 ? v50 : 0;
  float4 v52 = float4(*(device const packed_float4 *)&m1[v51]);
  float v53 = v52[0];
  float v54 = v52[1];
  float v55 = v52[2];
  float v56 = v52[3];
  float v57 = v48 ? v53 : (0.00000000e+00f);
  float v58 = v48 ? v54 : (0.00000000e+00f);
  float v59 = v48 ? v55 : (0.00000000e+00f);
  float v60 = v48 ? v56 : (0.00000000e+00f);
  int v61 = (int)((uint)v18 * (uint)8);
  int v62 = (int)((uint)v61 + (uint)v17);
  m4[v62] = v57;
  m4[v62 + 1] = v58;
  m4[v62 + 2] = v59;
  m4[v62 + 3] = v60;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  for (int v69 = 0; v69 < 8; v69 += 1) {
  int v70 = (int)((uint)v69 * (uint)12);
  int v71 = (int)((uint)v70 + (uint)v11);
  int v72 = (int)((uint)v69 * (uint)8);
  int v73 = (int)((uint)v72 + (uint)v13);
  float v74 = m3[v71];
  float v75 = m4[v73];
  float v76 = x8;
  float v77 = fma(v74, v75, v76);
  x8 = v77;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
  int v82 = (int)((uint)v11 * (uint)8);
  int v83 = (int)((uint)v82 + (uint)v13);
  float v84 = x8;
  m5[v83] = v84;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  for (int v87 = v1; v87 < 64; v87 += 64) {
  float v88 = m5[v87];
  int v89 = (int)(v87 >> 3);
  int v90 = (int)((uint)v5 + (uint)v89);
  int v91 = (int)(v87 & 7);
  int v92 = (int)((uint)v7 + (uint)v91);
  bool v93 = v90 < 33;
  if (v93) {
  bool v95 = v88 <= (0.00000000e+00f);
  float v96 = v95 ? (0.00000000e+00f) : v88;
  int v97 = (int)((uint)v90 * (uint)40);
  int v98 = (int)((uint)v97 + (uint)v92);
  m2[v98] = v96;
  }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
}
