# %% [markdown]
# # Super-resolution, before and after
#
# This tutorial runs a trained network (a slim ESRGAN that enlarges four times) on a real picture.
# A crop is made four times smaller, enlarged by the network on the AMD GPU in software, and
# compared with the original and with bicubic enlargement.

# %%
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(globals().get("ROOT", Path(__file__).resolve().parent.parent))))

import tec
from tools import zoo

original = Image.fromarray(zoo.image("chelsea")).crop((96, 20, 352, 276))  # 256 x 256
small = original.resize((64, 64), Image.Resampling.BICUBIC)
x = np.asarray(small, dtype="float32").transpose(2, 0, 1)[None]

# %%
net = tec.compile(str(zoo.get("esrgan_slim_x4")), target="rocm -mcpu=gfx942")
print(net, f"{net.report.flops / 1e9:.2f} GFLOP")
start = time.perf_counter()
(y,) = net.run([x], device=tec.rocm_emu("gfx942"))
print(f"{time.perf_counter() - start:.1f} s on the software GPU, translation of the kernels included")
(cpu,) = tec.compile(str(zoo.get("esrgan_slim_x4")), target="llvm").run([x])
print("largest difference to the CPU's pixels:", float(np.abs(y - cpu).max()))
assert np.abs(y - cpu).max() < 0.05

# %% [markdown]
# The two differ in sharpness, which is measured as the share of the original's gradient that each
# keeps.

# %%
large = Image.fromarray(y[0].transpose(1, 2, 0).clip(0, 255).round().astype("uint8"))
bicubic = small.resize((256, 256), Image.Resampling.BICUBIC)


def gradient(picture):
    grey = np.asarray(picture.convert("L"), dtype="float64")
    return np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean()


def psnr(picture):
    error = np.asarray(picture, dtype="float64") - np.asarray(original, dtype="float64")
    return 10 * np.log10(255**2 / (error**2).mean())


for name, picture in (("bicubic", bicubic), ("network", large)):
    print(
        f"{name}: {gradient(picture) / gradient(original):.0%} of the original's gradient, PSNR {psnr(picture):.1f} dB"
    )
assert gradient(large) > gradient(bicubic) and psnr(large) > 20

# %%
sheet = Image.new("RGB", (4 * 256 + 3 * 8, 256), "white")
for k, picture in enumerate((small.resize((256, 256), Image.Resampling.NEAREST), bicubic, large, original)):
    sheet.paste(picture, (k * 264, 0))
sheet.save("super_resolution.png")

# %% [markdown]
# ![the small crop, enlarged bicubically, enlarged by the network, the original](super_resolution.png)
#
# From the left: the 64 x 64 crop, enlarged bicubically, enlarged by the network, the original. The
# network is a small one: it draws edges sharper, and leaves a faint grid of its own where it
# repeats each pixel four times before the last convolution.
