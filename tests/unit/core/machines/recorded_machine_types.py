"""Machine types as `machineTypes.list` of Compute Engine answers: name, guest_cpus, memory_mb, type
and number of GPUs, and the number of bundled local SSDs, of which each has 375 GiB.

Sources. LISTED: an answer that Google recorded in the tests of its own client
(GoogleCloudPlatform/deploystack, `MachineTypeList` of February 2023); it has no accelerators, those
of a2 are in the names. NEWER: the machine types of GKE's cluster autoscaler (2026), which has GiB;
there, g2-standard-24 has 23 vCPUs, which its own name contradicts. PAGES: the tables of "Machine
families resource and comparison guide" (2025), in MiB.
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
PAGES: Final = """
n1-standard-2 2 7680
n1-standard-8 8 30720
n1-standard-16 16 61440
n1-standard-32 32 122880
n1-standard-64 64 245760
n1-highmem-4 4 26624
n1-highmem-8 8 53248
n1-highmem-16 16 106496
n1-highmem-32 32 212992
n1-highmem-64 64 425984
n1-highcpu-4 4 3686
n1-highcpu-32 32 29491
n2-standard-2 2 8192
n2-standard-4 4 16384
n2-standard-8 8 32768
n2-standard-16 16 65536
n2-standard-32 32 131072
n2-standard-48 48 196608
n2-standard-64 64 262144
n2-standard-80 80 327680
n2-standard-96 96 393216
n2-highmem-2 2 16384
n2-highmem-4 4 32768
n2-highmem-8 8 65536
n2-highmem-16 16 131072
n2-highmem-32 32 262144
n2-highmem-48 48 393216
n2-highmem-64 64 524288
n2-highmem-80 80 655360
n2-highcpu-2 2 2048
n2-highcpu-4 4 4096
n2-highcpu-8 8 8192
n2-highcpu-16 16 16384
n2-highcpu-32 32 32768
n2-highcpu-48 48 49152
n2-highcpu-64 64 65536
n2-highcpu-80 80 81920
e2-standard-2 2 8192
e2-standard-4 4 16384
e2-standard-16 16 65536
e2-standard-32 32 131072
e2-highmem-2 2 16384
e2-highmem-4 4 32768
e2-highmem-8 8 65536
e2-highcpu-2 2 2048
e2-highcpu-4 4 4096
e2-highcpu-8 8 8192
e2-highcpu-16 16 16384
n2d-standard-2 2 8192
n2d-standard-4 4 16384
n2d-standard-8 8 32768
n2d-standard-16 16 65536
n2d-standard-32 32 131072
n2d-standard-48 48 196608
n2d-standard-64 64 262144
n2d-standard-80 80 327680
n2d-standard-96 96 393216
n2d-standard-128 128 524288
n2d-highmem-2 2 16384
n2d-highmem-4 4 32768
n2d-highmem-8 8 65536
n2d-highmem-16 16 131072
n2d-highmem-32 32 262144
n2d-highmem-48 48 393216
n2d-highmem-64 64 524288
n2d-highmem-80 80 655360
n4-standard-2 2 8192
n4-standard-4 4 16384
n4-standard-8 8 32768
n4-standard-16 16 65536
n4-standard-32 32 131072
n4-standard-48 48 196608
n4-standard-64 64 262144
n4-standard-80 80 327680
n4-highmem-2 2 16384
n4-highmem-4 4 32768
n4-highmem-8 8 65536
n4-highmem-16 16 131072
n4-highmem-32 32 262144
n4-highmem-48 48 393216
n4-highmem-64 64 524288
n4-highmem-80 80 655360
n4-highcpu-2 2 4096
n4-highcpu-4 4 8192
n4-highcpu-8 8 16384
n4-highcpu-16 16 32768
n4-highcpu-32 32 65536
n4-highcpu-48 48 98304
n4-highcpu-64 64 131072
n4-highcpu-80 80 163840
c2-standard-8 8 32768
c2-standard-16 16 65536
c2d-standard-2 2 8192
c2d-standard-4 4 16384
c2d-standard-16 16 65536
c2d-standard-32 32 131072
c2d-standard-56 56 229376
c2d-standard-112 112 458752
c3-standard-4 4 16384
c3-standard-8 8 32768
c3-standard-22 22 90112
c3-standard-44 44 180224
c3-standard-88 88 360448
c3-standard-176 176 720896
c3-highmem-4 4 32768
c3-highmem-8 8 65536
c3-highmem-22 22 180224
c3-highmem-44 44 360448
c3-highmem-88 88 720896
c3-highmem-176 176 1441792
c3-highcpu-4 4 8192
c3-highcpu-8 8 16384
c3-highcpu-22 22 45056
c3-highcpu-44 44 90112
c3-highcpu-88 88 180224
c3-highcpu-176 176 360448
c3d-standard-4 4 16384
c3d-standard-8 8 32768
c3d-standard-16 16 65536
c3d-standard-30 30 122880
c3d-standard-60 60 245760
c3d-standard-90 90 368640
c3d-standard-180 180 737280
c3d-standard-360 360 1474560
c4-standard-2 2 7168
c4-standard-4 4 15360
c4-standard-8 8 30720
c4-standard-16 16 61440
c4-standard-24 24 92160
c4-standard-32 32 122880
c4-standard-48 48 184320
c4-standard-96 96 368640
c4-standard-144 144 552960
c4-standard-192 192 737280
c4-standard-288 288 1105920
c4-highmem-2 2 15360
c4-highmem-4 4 31744
c4-highmem-8 8 63488
c4-highmem-16 16 126976
c4-highmem-24 24 190464
c4-highmem-32 32 253952
c4-highmem-48 48 380928
c4-highmem-96 96 761856
c4-highmem-144 144 1142784
c4-highmem-192 192 1523712
c4-highmem-288 288 2285568
c4-highcpu-2 2 4096
c4-highcpu-4 4 8192
c4-highcpu-8 8 16384
c4-highcpu-16 16 32768
c4-highcpu-24 24 49152
c4-highcpu-32 32 65536
c4-highcpu-48 48 98304
c4-highcpu-96 96 196608
c4-highcpu-144 144 294912
c4-highcpu-192 192 393216
c4-highcpu-288 288 589824
c4d-standard-8 8 31744
c4d-standard-16 16 63488
c4d-standard-32 32 126976
c4d-standard-48 48 190464
c4d-standard-64 64 253952
c4d-standard-96 96 380928
c4d-standard-192 192 761856
c4d-highcpu-4 4 7168
c4d-highcpu-8 8 15360
c4d-highcpu-16 16 30720
c4d-highcpu-32 32 61440
c4d-highcpu-48 48 92160
c4d-highcpu-64 64 122880
c4d-highcpu-96 96 184320
c4d-highcpu-192 192 368640
m3-ultramem-64 64 1998848
t2d-standard-1 1 4096
t2d-standard-2 2 8192
t2d-standard-4 4 16384
t2d-standard-8 8 32768
t2d-standard-16 16 65536
t2d-standard-32 32 131072
t2d-standard-48 48 196608
a2-ultragpu-8g 96 1392640 nvidia-a100-80gb 8 8
a2-ultragpu-4g 48 696320 nvidia-a100-80gb 4 4
a3-highgpu-1g 26 239616 nvidia-h100-80gb 1 2
g2-standard-8 8 32768 nvidia-l4 1
g2-standard-12 12 49152 nvidia-l4 1
g2-standard-16 16 65536 nvidia-l4 1
"""
