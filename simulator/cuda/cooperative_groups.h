// Cooperative groups: none on the CPU. Kernels use them only where __CUDA_ARCH__ says so.
#pragma once
