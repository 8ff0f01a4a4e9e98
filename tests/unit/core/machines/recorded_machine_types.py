"""Machine types as `machineTypes.list` of Compute Engine answers: name, guest_cpus, memory_mb, type
and number of GPUs, and the number of bundled local SSDs, of which each has 375 GiB.

Sources. LISTED: an answer that Google recorded in the tests of its own client
(GoogleCloudPlatform/deploystack, `MachineTypeList` of February 2023); it has no accelerators, those
of a2 are in the names. NEWER: the machine types of GKE's cluster autoscaler (2026), which has GiB;
there, g2-standard-24 has 23 vCPUs, which its own name contradicts.
"""

from __future__ import annotations

from typing import Final

LISTED: Final = """
a2-highgpu-1g 12 87040 nvidia-tesla-a100 1
a2-highgpu-2g 24 174080 nvidia-tesla-a100 2
a2-highgpu-4g 48 348160 nvidia-tesla-a100 4
a2-highgpu-8g 96 696320 nvidia-tesla-a100 8
a2-megagpu-16g 96 1392640 nvidia-tesla-a100 16
c2-standard-4 4 16384
c2-standard-30 30 122880
c2-standard-60 60 245760
c2d-highcpu-112 112 229376
c2d-highmem-56 56 458752
c2d-standard-8 8 32768
e2-highcpu-32 32 32768
e2-highmem-16 16 131072
e2-medium 2 4096
e2-micro 2 1024
e2-small 2 2048
e2-standard-8 8 32768
m3-megamem-128 128 1998848
m3-ultramem-32 32 999424
m3-ultramem-128 128 3997696
n1-highcpu-2 2 1843
n1-highcpu-8 8 7373
n1-highcpu-16 16 14746
n1-highcpu-64 64 58982
n1-highcpu-96 96 88474
n1-highmem-2 2 13312
n1-highmem-96 96 638976
n1-standard-1 1 3840
n1-standard-4 4 15360
n1-standard-96 96 368640
n2-highcpu-96 96 98304
n2-highmem-96 96 786432
n2-highmem-128 128 884736
n2-standard-128 128 524288
n2d-highcpu-224 224 229376
n2d-highmem-96 96 786432
n2d-standard-224 224 917504
t2d-standard-60 60 245760
"""
NEWER: Final = """
g2-standard-4 4 16384 nvidia-l4 1
g2-standard-24 24 98304 nvidia-l4 2
g2-standard-32 32 131072 nvidia-l4 1
g2-standard-48 48 196608 nvidia-l4 4
g2-standard-96 96 393216 nvidia-l4 8
g4-standard-48 48 184320 nvidia-rtx-pro-6000 1
g4-standard-96 96 368640 nvidia-rtx-pro-6000 2
g4-standard-192 192 737280 nvidia-rtx-pro-6000 4
g4-standard-384 384 1474560 nvidia-rtx-pro-6000 8
a2-ultragpu-1g 12 174080 nvidia-a100-80gb 1 1
a2-ultragpu-2g 24 348160 nvidia-a100-80gb 2 2
a3-ultragpu-8g 224 3022848 nvidia-h200-141gb 8 32
a3-highgpu-2g 52 479232 nvidia-h100-80gb 2 4
a3-highgpu-4g 104 958464 nvidia-h100-80gb 4 8
a3-highgpu-8g 208 1916928 nvidia-h100-80gb 8 16
a3-edgegpu-8g 208 1916928 nvidia-h100-80gb 8 16
a3-megagpu-8g 208 1916928 nvidia-h100-mega-80gb 8 16
a4-highgpu-8g 224 4063232 nvidia-b200 8 32
h4d-standard-192 192 737280
h4d-highmem-192 192 1523712
c4d-highcpu-2 2 3072
c4d-highcpu-384 384 737280
c4d-standard-2 2 7168
c4d-standard-4 4 15360
c4d-standard-384 384 1523712
"""
