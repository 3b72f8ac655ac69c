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
  int v190 = (int)((uint)v0 * (uint)13);
  int v4 = (int)(v190 >> 6);
  int v5 = (int)((uint)v4 * (uint)8);
  int v192 = (int)((uint)v0 * (uint)13);
  int v193 = (int)(v192 >> 6);
  int v194 = (int)((uint)v193 * (uint)5);
  int v6 = (int)((uint)v0 - (uint)v194);
  int v7 = (int)((uint)v6 * (uint)8);
  int v1 = (int)thread_.x;
  x8 = (0.00000000e+00f);
  int v10 = (int)(v1 >> 3);
  int v11 = (int)((uint)v10 * (uint)1);
  int v12 = (int)(v1 & 7);
  int v13 = (int)((uint)v12 * (uint)1);
  int v14 = (int)((uint)v1 + (uint)0);
  int v15 = (int)(v14 & 1);
  int v16 = (int)((uint)v15 * (uint)4);
  int v17 = (int)(v14 >> 1);
  bool v18 = v14 < 16;
  int v19 = (int)((uint)v5 + (uint)v17);
  int v20 = (int)((uint)0 + (uint)v16);
  bool v21 = v19 < 33;
  bool v22 = v20 < 20;
  bool v23 = (bool)(v21 & v22);
  int v24 = (int)((uint)v16 * (uint)12);
  int v25 = (int)((uint)v24 + (uint)v17);
  bool v26 = (bool)(v23 & v18);
  int v27 = (int)((uint)v19 * (uint)20);
  int v28 = (int)((uint)v20 + (uint)v27);
  int v29 = v26 ? v28 : 0;
  float4 v30 = float4(*(device const packed_float4 *)&m0[v29]);
  float v31 = v30[0];
  float v32 = v30[1];
  float v33 = v30[2];
  float v34 = v30[3];
  float v35 = v26 ? v31 : (0.00000000e+00f);
  float v36 = v26 ? v32 : (0.00000000e+00f);
  float v37 = v26 ? v33 : (0.00000000e+00f);
  float v38 = v26 ? v34 : (0.00000000e+00f);
  int v39 = (int)((uint)v7 + (uint)v16);
  int v40 = (int)((uint)0 + (uint)v17);
  bool v41 = v40 < 20;
  int v42 = (int)((uint)v17 * (uint)8);
  int v43 = (int)((uint)v42 + (uint)v16);
  bool v44 = (bool)(v41 & v18);
  int v45 = (int)((uint)v40 * (uint)40);
  int v46 = (int)((uint)v45 + (uint)v39);
  int v47 = v44 ? v46 : 0;
  float4 v48 = float4(*(device const packed_float4 *)&m1[v47]);
  float v49 = v48[0];
  float v50 = v48[1];
  float v51 = v48[2];
  float v52 = v48[3];
  float v53 = v44 ? v49 : (0.00000000e+00f);
  float v54 = v44 ? v50 : (0.00000000e+00f);
  float v55 = v44 ? v51 : (0.00000000e+00f);
  float v56 = v44 ? v52 : (0.00000000e+00f);
  if (v18) {
  m3[v25] = v35;
  m3[v25 + 12] = v36;
  m3[v25 + 24] = v37;
  m3[v25 + 36] = v38;
  }
  if (v18) {
  m4[v43] = v53;
  m4[v43 + 1] = v54;
  m4[v43 + 2] = v55;
  m4[v43 + 3] = v56;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  for (int v70 = 0; v70 < 16; v70 += 8) {
  int v71 = (int)((uint)v70 + (uint)8);
  int v72 = (int)((uint)v71 + (uint)v16);
  bool v73 = v72 < 20;
  bool v74 = (bool)(v21 & v73);
  bool v75 = (bool)(v74 & v18);
  int v76 = (int)((uint)v72 + (uint)v27);
  int v77 = v75 ? v76 : 0;
  float4 v78 = float4(*(device const packed_float4 *)&m0[v77]);
  float v79 = v78[0];
  float v80 = v78[1];
  float v81 = v78[2];
  float v82 = v78[3];
  float v83 = v75 ? v79 : (0.00000000e+00f);
  float v84 = v75 ? v80 : (0.00000000e+00f);
  float v85 = v75 ? v81 : (0.00000000e+00f);
  float v86 = v75 ? v82 : (0.00000000e+00f);
  int v87 = (int)((uint)v71 + (uint)v17);
  bool v88 = v87 < 20;
  bool v89 = (bool)(v88 & v18);
  int v90 = (int)((uint)v87 * (uint)40);
  int v91 = (int)((uint)v90 + (uint)v39);
  int v92 = v89 ? v91 : 0;
  float4 v93 = float4(*(device const packed_float4 *)&m1[v92]);
  float v94 = v93[0];
  float v95 = v93[1];
  float v96 = v93[2];
  float v97 = v93[3];
  float v98 = v89 ? v94 : (0.00000000e+00f);
  float v99 = v89 ? v95 : (0.00000000e+00f);
  float v100 = v89 ? v96 : (0.00000000e+00f);
  float v101 = v89 ? v97 : (0.00000000e+00f);
  for (int v102 = 0; v102 < 8; v102 += 2) {
  int v103 = (int)((uint)v102 * (uint)12);
  int v104 = (int)((uint)v103 + (uint)v11);
  int v105 = (int)((uint)v102 * (uint)8);
  int v106 = (int)((uint)v105 + (uint)v13);
  float v107 = m3[v104];
  float v108 = m4[v106];
  float v109 = x8;
  float v110 = fma(v107, v108, v109);
  x8 = v110;
  float v112 = m3[v104 + 12];
  float v113 = m4[v106 + 8];
  float v114 = x8;
  float v115 = fma(v112, v113, v114);
  x8 = v115;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  if (v18) {
  m3[v25] = v83;
  m3[v25 + 12] = v84;
  m3[v25 + 24] = v85;
  m3[v25 + 36] = v86;
  }
  if (v18) {
  m4[v43] = v98;
  m4[v43 + 1] = v99;
  m4[v43 + 2] = v100;
  m4[v43 + 3] = v101;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
  for (int v133 = 0; v133 < 8; v133 += 2) {
  int v134 = (int)((uint)v133 * (uint)12);
  int v135 = (int)((uint)v134 + (uint)v11);
  int v136 = (int)((uint)v133 * (uint)8);
  int v137 = (int)((uint)v136 + (uint)v13);
  float v138 = m3[v135];
  float v139 = m4[v137];
  float v140 = x8;
  float v141 = fma(v138, v139, v140);
  x8 = v141;
  float v143 = m3[v135 + 12];
  float v144 = m4[v137 + 8];
  float v145 = x8;
  float v146 = fma(v143, v144, v145);
  x8 = v146;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  int v150 = (int)((uint)v11 * (uint)8);
  int v151 = (int)((uint)v150 + (uint)v13);
  float v152 = x8;
  m5[v151] = v152;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  int v155 = (int)(v1 & 1);
  int v156 = (int)((uint)v155 * (uint)4);
  int v157 = (int)((uint)v156 + (uint)0);
  int v158 = (int)((uint)v7 + (uint)v157);
  int v159 = (int)(v1 >> 1);
  for (int v160 = v159; v160 < 8; v160 += 32) {
  int v161 = (int)((uint)v160 * (uint)8);
  int v162 = (int)((uint)v161 + (uint)v156);
  float4 v163 = float4(*(threadgroup const packed_float4 *)&m5[v162]);
  float v177 = v163[0];
  float v178 = v163[1];
  float v179 = v163[2];
  float v180 = v163[3];
  int v164 = (int)((uint)v5 + (uint)v160);
  bool v165 = v164 < 33;
  if (v165) {
  bool v181 = v177 <= (0.00000000e+00f);
  bool v182 = v178 <= (0.00000000e+00f);
  bool v183 = v179 <= (0.00000000e+00f);
  bool v184 = v180 <= (0.00000000e+00f);
  float v185 = v181 ? (0.00000000e+00f) : v177;
  float v186 = v182 ? (0.00000000e+00f) : v178;
  float v187 = v183 ? (0.00000000e+00f) : v179;
  float v188 = v184 ? (0.00000000e+00f) : v180;
  int v169 = (int)((uint)v164 * (uint)40);
  int v170 = (int)((uint)v169 + (uint)v158);
  float4 v189 = float4(v185, v186, v187, v188);
  *(device packed_float4 *)&m2[v170] = v189;
  }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
}
