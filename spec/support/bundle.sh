#!/bin/sh
# spec/support/bundle.sh FOLDER -- copies what runs the specs on a machine that has an
# NVIDIA driver but neither Lua nor busted, and packs it beside the folder.
set -eu
to=$1
share=$(lua5.4 -e 'print(package.searchpath("busted", package.path):match("(.*)/busted"))')
share=${share%/busted}
lib=$(lua5.4 -e 'print(package.searchpath("lfs", package.cpath):match("(.*)/lfs"))')
rm -rf "$to"
mkdir -p "$to/build" "$to/kernels" "$to/runtime" "$to/share" "$to/lib"
for name in busted luassert say pl mediator cliargs term system; do
  for file in "$share/$name" "$share/$name.lua"; do
    if [ -e "$file" ]; then cp -rL "$file" "$to/share/"; fi
  done
done
for name in lfs.so lpeg.so system term; do
  if [ -e "$lib/$name" ]; then cp -rL "$lib/$name" "$to/lib/"; fi
done
cp build/mtlua build/mytensor.so "$to/build/"
if [ -e build/mytensor_cuda.so ]; then cp build/mytensor_cuda.so "$to/build/"; fi
static=$(ls /usr/lib/*/liblua5.4.a /usr/local/lib/liblua5.4.a 2>/dev/null | head -1)
gcc -O1 -I. -Iruntime -isystem /usr/include/lua5.4 -isystem /usr/local/include/lua5.4 \
  -o "$to/build/two_states" spec/support/two_states.c -Wl,-E -Wl,--whole-archive \
  "$static" -Wl,--no-whole-archive -Lbuild -l:mytensor.so -Wl,-rpath,'$ORIGIN' \
  -lm -ldl -lpthread
strip --strip-unneeded "$to"/build/*
cp -r spec examples lua "$to/"
cp runtime/mytensor.h "$to/runtime/"
cp kernels/ops.def "$to/kernels/"
for folder in /usr/include/lua5.4 /usr/local/include/lua5.4; do
  if [ -e "$folder/lua.h" ]; then
    mkdir -p "$to/include/lua5.4"
    cp "$folder"/*.h "$to/include/lua5.4/"
  fi
done
for header in /usr/include/*/lua5.4-deb-multiarch.h; do
  if [ -e "$header" ]; then cp "$header" "$to/include/lua5.4/"; fi
done
# What kernels in Lua may include, where there is no CUDA toolkit.
cuda=${CUDA_HOME:-/usr/local/cuda}/include
if [ -e "$cuda/mma.h" ]; then
  mkdir -p "$to/include/cuda/cccl"
  for name in builtin_types channel_descriptor cuda_awbarrier cuda_bf16 \
    cuda_device_runtime_api cuda_fp16 cuda_fp8 cuda_pipeline cuda_runtime \
    device_launch_parameters device_types driver_types host_defines library_types \
    math_constants mma sm_ surface_types texture_types vector_; do
    cp "$cuda/$name"*.h* "$to/include/cuda/"
  done
  cp -r "$cuda/crt" "$to/include/cuda/"
  if [ -e "$cuda/cccl/nv" ]; then cp -r "$cuda/cccl/nv" "$to/include/cuda/cccl/"; fi
fi
cat > "$to/run-specs" <<'END'
#!/bin/sh
# run-specs [what ...]: the specs, inside the host beside this file.
cd "$(dirname "$0")"
export LUA_PATH='./share/?.lua;./share/?/init.lua;;' LUA_CPATH='./lib/?.so;;'
exec build/mtlua spec/run.lua "$@"
END
cat > "$to/run-bench" <<'END'
#!/bin/sh
# run-bench [--device cuda] [options of spec/bench/run.py]: the benchmarks, beside
# PyTorch's where python3 has it.
cd "$(dirname "$0")"
exec python3 spec/bench/run.py "$@"
END
chmod +x "$to/run-specs" "$to/run-bench"
git rev-parse --short=12 HEAD > "$to/build/commit"
tar -C "$(dirname "$to")" -cf - "$(basename "$to")" | zstd -q -19 -T0 -f -o "$to.tar.zst"
du -sh "$to" "$to.tar.zst"
