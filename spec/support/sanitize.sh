#!/bin/sh
# spec/support/sanitize.sh [tool ...] -- every op's cases on the GPU under NVIDIA's
# compute-sanitizer (memcheck, racecheck, initcheck, synccheck; all if none is named), and
# the specs of cuDNN under memcheck. In the root of the tree or of the bundle.
#
# JOBS: pieces at a time (3). DTYPE: of the cases (float32). LIMIT: seconds for a piece
# (150). OPS: patterns of names, a piece each. LOGS: a folder for what the tools say.
set -u
tools=${*:-memcheck racecheck initcheck synccheck}
export DTYPE="${DTYPE:-float32}" LIMIT="${LIMIT:-150}" LOGS="${LOGS:-build/sanitizer}"
export MYTENSOR_REQUIRE_CUDA=1
if [ -d share ]; then
  export LUA_PATH='./share/?.lua;./share/?/init.lua;;' LUA_CPATH='./lib/?.so;;'
fi
rm -rf "$LOGS"
mkdir -p "$LOGS"
cat > "$LOGS/piece" <<'END'
#!/bin/sh
# piece TOOL OPS: one run; OPS `cudnn` is the spec of that name.
log=$LOGS/$1-$(echo "$2" | tr -c 'a-z0-9\n' _).txt
own='require"mytensor".backends.cudnn.enabled = false'
if [ "$2" = cudnn ]; then
  set -- "$1" "$2" build/mtlua spec/run.lua cudnn
else
  set -- "$1" "$2" build/mtlua -e "$own" spec/run.lua ops/matrix \
    --filter="^ ?$2%S* $DTYPE in cuda"
fi
tool=$1 ops=$2
shift 2
begin=$(date +%s)
timeout "$LIMIT" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 \
  "$@" > "$log" 2>&1
status=$?
said=$(grep -o 'ERROR SUMMARY.*\|RACECHECK SUMMARY.*' "$log" | tail -1)
passed=$(grep ' passed, ' "$log" | tail -1)
echo "$tool $ops: $passed; $said ($(($(date +%s) - begin)) s, status $status)"
[ "$status" = 0 ] || { echo "$tool $ops" >> "$LOGS/failed"; exit 0; }
END
chmod +x "$LOGS/piece"
for tool in $tools; do
  for ops in ${OPS:-[ab_] c [de] [f-h] i [j-l] [mn] [op] [q-r] s [t-z]}; do
    echo "$tool $ops"
  done
  if [ "$tool" = memcheck ] && [ -z "${OPS:-}" ]; then echo "memcheck cudnn"; fi
done | xargs -P "${JOBS:-3}" -L 1 "$LOGS/piece"
if [ -e "$LOGS/failed" ]; then
  echo "failed:"
  cat "$LOGS/failed"
  exit 1
fi
echo "no errors"
