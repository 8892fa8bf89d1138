# Makefile -- builds the host, the module and the CUDA plugin; runs the specs.
#
# `make help` lists the targets. A new file in an existing folder needs no change here.

# ---- settings: override them on the command line ---------------------------------------
CC           = gcc
NVCC         = $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc))
PREFIX       = /usr/local
DESTDIR      =
MODULE_DIR   = $(PREFIX)/lib/lua/5.4
PLUGIN_DIR   = $(PREFIX)/lib/mytensor
LUA          = lua5.4
LUA_INCDIR   = $(firstword $(wildcard /usr/include/lua5.4 /usr/local/include/lua5.4) \
                 $(wildcard /usr/include/lua-5.4) /usr/local/include)
LUA_STATIC   = $(firstword $(wildcard /usr/lib/*/liblua5.4.a /usr/lib*/liblua5.4.a) \
                 $(wildcard /usr/local/lib/liblua5.4.a /usr/local/lib/liblua.a) \
                 $(wildcard /usr/lib*/liblua.a) liblua5.4.a)
CUDA_ARCHS   = 90
# What make bundle compiles for; its objects lie in a folder of their own.
BUNDLE_ARCHS = 75 80 86 89 90
CLANG_FORMAT = $(or $(shell command -v clang-format-14),clang-format)
CFLAGS       = -g
# SAN=address, SAN=thread and SAN=coverage build in folders of their own.
SAN          =

# What Debian and Ubuntu call the things that we need, and those that serve if present.
DEPS_BUILD  := gcc make liblua5.4-dev zlib1g-dev
DEPS_TEST   := lua5.4 lua-busted
DEPS_DEMO   := dataset-fashion-mnist
DEPS_LINT   := clang-format-14 lua-check
DEPS_FUZZ   := clang-14 libclang-rt-14-dev
DEPS_WANTED := libedit2

, := ,

# ---- folders and flags -----------------------------------------------------------------
B_          := build
B_address   := build/asan
B_thread    := build/tsan
B_coverage  := build/cov
SAN_address  = -fsanitize=address,undefined -fno-sanitize-recover=undefined \
               -fno-omit-frame-pointer
SAN_thread   = -fsanitize=thread -fno-omit-frame-pointer
SAN_coverage = --coverage
B           := $(or $(B_$(SAN)),$(error SAN is one of address, thread, coverage))
O           := $(B)/obj
NVO          = $(O)

WARNINGS := -Wall -Wextra -Wshadow -Wvla -Wdouble-promotion -Wmissing-prototypes -Werror
# Never -ffast-math: NaN and infinities are values like others.
MATH     := -fno-math-errno -fno-trapping-math -fwrapv
INCLUDES  = -I. -I$(B)/gen -isystem $(LUA_INCDIR)
COMPILE   = $(CC) -std=gnu11 -fopenmp -fPIC -fvisibility=hidden $(MATH) $(WARNINGS) \
            $(INCLUDES) $(OPT) $(SAN_$(SAN)) $(CPPFLAGS) $(CFLAGS) -MMD -MP
LINK      = $(CC) $(SAN_$(SAN)) $(LDFLAGS)
LIBS      = -Wl,--as-needed -lmvec -lm -ldl -lpthread
# So that one file can be copied to another machine, the host brings these; a library
# that a script opens later shares its OpenMP threads, which therefore are exported.
GOMP      = $(filter /%,$(shell $(CC) -print-file-name=libgomp.a))
HOST_LIBS = $(if $(and $(GOMP),$(if $(SAN),,1)),-Wl$(,)--whole-archive $(GOMP) \
              -Wl$(,)--no-whole-archive,$(OPENMP)) \
            $(if $(wildcard /usr/lib/*/libz.a),-l:libz.a -Wl$(,)--exclude-libs$(,)libz.a,-lz)

# ThreadSanitizer knows nothing of libgomp's threads: there pthreads stand in for them.
OPENMP    = $(if $(filter thread,$(SAN)),$(O)/spec/support/gomp.o,-fopenmp)

# ---- sources ---------------------------------------------------------------------------
ROWS_SRC := $(wildcard kernels/cpu/rows_*.c)
KERN_SRC := $(filter-out $(ROWS_SRC),$(wildcard kernels/cpu/*.c))
LIB_SRC  := $(wildcard runtime/core/*.c runtime/autograd/*.c runtime/bind/*.c)
HOST_SRC := $(wildcard runtime/*.c)
CUDA_SRC := $(wildcard kernels/cuda/*.cu)
LUA_SRC  := $(filter-out lua/mytensor/meta.lua,$(wildcard lua/mytensor/*.lua \
              lua/mytensor/*/*.lua lua/mytensor/*/*/*.lua))

# What C modules are compiled with, wherever the binary is copied to.
HEADERS   = runtime/mytensor.h $(wildcard $(addprefix $(LUA_INCDIR)/,lua.h luaconf.h \
              lauxlib.h lualib.h)) $(firstword $(wildcard $(LUA_INCDIR)/lua5.4-deb-multiarch.h \
              /usr/include/*/lua5.4-deb-multiarch.h))

ROWS_OBJ := $(foreach isa,v1 v3 v4,$(ROWS_SRC:%.c=$(O)/%.$(isa).o))
LIB_OBJ  := $(ROWS_OBJ) $(KERN_SRC:%.c=$(O)/%.o) $(LIB_SRC:%.c=$(O)/%.o) \
            $(O)/embedded.o $(O)/formula_text.o
HOST_OBJ := $(HOST_SRC:%.c=$(O)/%.o)
CUDA_OBJ := $(CUDA_SRC:%.cu=$(NVO)/%.cu.o)
PLUGIN   := $(if $(and $(CUDA_SRC),$(NVCC)),$(B)/mytensor_cuda.so)
VERSION  := $(or $(shell sed -n 's/^\#define MT_VERSION  *"\(.*\)".*/\1/p' \
              runtime/mytensor.h 2>/dev/null),0.0.0)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all here module plugin objects FORCE

all: here plugin ## build the host, the module and the CUDA plugin
# What serves on this machine: the plugin takes minutes, and needs a GPU to be of use.
here: $(B)/mtlua module $(if $(wildcard /dev/nvidiactl),plugin) ## build the host and the module; the plugin only where a GPU is
module: $(B)/mytensor.so
objects: $(LIB_OBJ) $(HOST_OBJ)
plugin: $(PLUGIN) ## build the CUDA plugin
	$(if $(CUDA_SRC),$(if $(NVCC),,@echo "no nvcc here: the CUDA plugin is not built"))

# ---- compiling -------------------------------------------------------------------------
Q   := $(if $(V),,@)
say  = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')

# Standard input becomes the target, which is touched only when its content changes.
update = mkdir -p $(@D) && cat > $@.new && \
         if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(B)/gen/flags: FORCE
	@echo '$(filter-out ccache,$(COMPILE))' | { $(update); }
$(NVO)/nvflags: FORCE
	@echo '$(NVCC) $(NVFLAGS)' | { $(update); }
$(B)/gen/plugin_dir: FORCE
	@echo '$(PLUGIN_DIR)' | { $(update); }
$(B)/gen/objects: FORCE
	@echo '$(LIB_OBJ) $(HOST_OBJ) $(CUDA_OBJ) $(filter-out ccache,$(LINK)) $(HOST_LIBS) $(LIBS)' | { $(update); }
$(B)/gen/modules: FORCE
	@echo '$(LUA_SRC) $(HEADERS)' | { $(update); }

# The plugin and the core must have been built from the same contract: what both include.
CONTRACT := $(wildcard kernels/*.h kernels/ops.def)
$(B)/gen/contract.h: $(CONTRACT) $(B)/gen/flags
	@sum=$$(cat $(CONTRACT) /dev/null | sha256sum | cut -c1-16); \
	{ echo '/* contract.h -- checksum of the headers in kernels and of ops.def. Generated. */'; \
	  echo "#define MT_CONTRACT \"$$sum\""; } | { $(update); }

# Every Lua file as a byte array: mytensor/nn/init.lua is the module mytensor.nn.
$(B)/gen/embedded.c: $(LUA_SRC) $(HEADERS) $(B)/gen/modules
	$(call say,EMBED,$@)
	@mkdir -p $(@D); { \
	echo '/* embedded.c -- the Lua files of the module. Generated. */'; \
	echo '#include "runtime/bind/embedded.h"'; \
	n=0; for f in $(LUA_SRC); do n=$$((n + 1)); \
	  echo "static const unsigned char f$$n[] = {"; \
	  od -An -v -tu1 "$$f" | sed 's/  */,/g; s/^,//; s/$$/,/'; echo '0};'; done; \
	echo 'const mt_embedded mt_embedded_files[] = {'; \
	n=0; for f in $(LUA_SRC); do n=$$((n + 1)); \
	  m=$$(echo "$$f" | sed 's,^lua/,,; s,\.lua$$,,; s,/init$$,,; s,/,.,g'); \
	  echo "{\"$$m\", (const char *)f$$n, sizeof f$$n - 1},"; done; \
	echo '{NULL, NULL, 0}};'; \
	n=0; for f in $(HEADERS); do n=$$((n + 1)); \
	  echo "static const unsigned char h$$n[] = {"; \
	  od -An -v -tu1 "$$f" | sed 's/  */,/g; s/^,//; s/$$/,/'; echo '0};'; done; \
	echo 'const mt_embedded mt_embedded_headers[] = {'; \
	n=0; for f in $(HEADERS); do n=$$((n + 1)); \
	  echo "{\"$${f##*/}\", (const char *)h$$n, sizeof h$$n - 1},"; done; \
	echo '{NULL, NULL, 0}};'; } > $@

# The words of the formulas, for kernels that are compiled at run time.
$(B)/gen/formula_text.c: kernels/words.h kernels/special.h kernels/cuda/formulas.cuh
	$(call say,EMBED,$@)
	@mkdir -p $(@D); { \
	echo '/* formula_text.c -- the text of these headers. Generated. */'; \
	echo '#include "runtime/core/fuse_source.h"'; for f in $^; do n=$${f##*/}; \
	  echo "const char mt_$${n%.*}_text[] = {"; \
	  od -An -v -tu1 $$f | sed 's/  */,/g; s/^,//; s/$$/,/'; \
	  echo '0};'; done; } > $@

$(O)/embedded.o $(O)/formula_text.o: $(O)/%.o: $(B)/gen/%.c $(B)/gen/flags
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -c -o $@ $<

$(O)/kernels/%.o: OPT = $(if $(SAN),-O1,-O3)
$(O)/%.o: OPT = $(if $(SAN),-O1,-O2)
$(O)/%.o: %.c $(B)/gen/flags | $(B)/gen/contract.h
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -c -o $@ $<

# Where an installed plugin lies.
$(O)/runtime/core/plugin.o: $(B)/gen/plugin_dir
$(O)/runtime/core/plugin.o: private CPPFLAGS += -DMT_LIBDIR='"$(PLUGIN_DIR)"'

# Row loops: one object for each level of x86-64, chosen at run time; without contraction
# all of them give the same results.
define rows_rule
$(O)/kernels/cpu/rows_%.$(1).o: kernels/cpu/rows_%.c $(B)/gen/flags | $(B)/gen/contract.h
	$$(call say,CC,$$< ($(1)))
	@mkdir -p $$(@D)
	$(Q)$$(COMPILE) -ffp-contract=off -march=$(2) -DMT_ISA=$(1) -c -o $$@ $$<
endef
$(eval $(call rows_rule,v1,x86-64))
$(eval $(call rows_rule,v3,x86-64-v3))
$(eval $(call rows_rule,v4,x86-64-v4))

NVFLAGS = -std=c++17 --expt-relaxed-constexpr -O3 -I. -I$(B)/gen \
          -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
          -Werror all-warnings -MMD -MP \
          $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
          -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS)) \
          $(NVCOMPRESS)
$(NVO)/%.cu.o: %.cu $(NVO)/nvflags | $(B)/gen/contract.h
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVFLAGS) -c -o $@ $<

-include $(patsubst %.o,%.d,$(LIB_OBJ) $(HOST_OBJ) $(CUDA_OBJ))

# ---- linking ---------------------------------------------------------------------------
# The host exports Lua's API, for other C modules; the module leaves it to its loader.
$(B)/mtlua $(B)/faults/mtlua: $(LIB_OBJ) $(HOST_OBJ) $(B)/gen/objects
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(FAULTS) -o $@ -Wl,-E $(HOST_OBJ) $(LIB_OBJ) \
	  -Wl,--whole-archive $(LUA_STATIC) -Wl,--no-whole-archive $(HOST_LIBS) $(LIBS)

# A host whose allocations fail when a spec says so: spec/support/faults.c stands between.
$(B)/mtlua: FAULTS =
$(B)/faults/mtlua: $(O)/spec/support/faults.o
$(B)/faults/mtlua: FAULTS = $(O)/spec/support/faults.o $(foreach f,malloc calloc realloc \
  free strdup posix_memalign aligned_alloc mmap luaL_newstate luaL_openlibs,-Wl$(,)--wrap=$(f))

# Lua states in threads: a program of the specs.
$(B)/threads: $(O)/spec/support/threads.o $(LIB_OBJ) $(B)/gen/objects
	$(call say,LINK,$@)
	$(Q)$(LINK) -o $@ $< $(LIB_OBJ) $(LUA_STATIC) $(OPENMP) -lz $(LIBS)
ifeq ($(SAN),thread)
$(B)/threads $(B)/mtlua: $(O)/spec/support/gomp.o
endif

# nodelete: OpenMP's threads outlive the Lua state that closes the module.
$(B)/mytensor.so: $(LIB_OBJ) $(B)/gen/objects
	$(call say,LINK,$@)
	$(Q)$(LINK) -shared -Wl,-soname,mytensor.so -Wl,-z,nodelete -o $@ $(LIB_OBJ) \
	  -fopenmp -lz $(LIBS)

$(B)/mytensor_cuda.so: $(CUDA_OBJ) $(B)/gen/objects
	$(call say,LINK,$@)
	$(Q)$(NVCC) -shared -cudart static -o $@ $(CUDA_OBJ) -ldl -lpthread

# ---- fuzzing ---------------------------------------------------------------------------
# What reads bytes from anywhere is compiled by clang with libFuzzer, which also sees which
# lines of Lua run; the rest is the module's.
CLANG       = $(or $(shell command -v clang-14),clang)
FUZZ_FLAGS  = -std=gnu11 -g -O1 -fwrapv -fno-omit-frame-pointer $(INCLUDES) \
              -fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZ_SRC   := runtime/bind/json.c runtime/bind/files.c runtime/bind/convert.c \
              runtime/bind/args.c runtime/core/formula.c runtime/core/geometry.c
FUZZERS    := $(patsubst spec/fuzzers/%.c,build/fuzz/%,$(wildcard spec/fuzzers/*.c))
FUZZ_OBJ   := $(FUZZ_SRC:%.c=build/fuzz/obj/%.o)
build/fuzz/obj/%.o: %.c | build/gen/contract.h
	$(call say,CLANG,$<)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<
$(FUZZERS): build/fuzz/%: build/fuzz/obj/spec/fuzzers/%.o $(FUZZ_OBJ) $(LIB_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $(filter-out \
	  $(FUZZ_SRC:%.c=$(O)/%.o),$^) -Wl,-E $(LUA_STATIC) $(GOMP) -lz $(LIBS)
-include $(wildcard build/fuzz/obj/*/*/*.d)

# ---- running ---------------------------------------------------------------------------
# deps can change what the settings above find: what follows it is a make of its own.
.PHONY: demo test test-cuda test-cuda-sanitize test-asan test-faults test-tsan test-gc test-soak fuzz fuzz-readers bench coverage
# Two of them do not run at once (make -j lint test); the makes inside do what -j allows.
AGAIN   = +@$(MAKE) --no-print-directory
SPECS   = spec/run.lua
ifneq ($(filter-out all here module objects plugin build/%,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

demo: ## install what is missing, build, train a network on Fashion-MNIST
	$(AGAIN) deps NEED="$(DEPS_BUILD) $(DEPS_DEMO)"
	$(AGAIN) here
	build/mtlua examples/fashion_mnist.lua --out build/fashion_mnist.safetensors

test: deps ## install what is missing, build, run the specs in the host and in lua5.4
	$(AGAIN) here
	build/mtlua $(SPECS)
	LUA_CPATH='build/?.so;;' $(LUA) $(SPECS)

test-gc: ## op, view, autograd and error specs with a collector that never rests
	$(AGAIN) here
	MYTENSOR_GC_STRESS=1 build/mtlua $(SPECS)

test-asan: ## the specs under AddressSanitizer and UndefinedBehaviorSanitizer
	$(AGAIN) SAN=address build/asan/mtlua
	ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  build/asan/mtlua $(SPECS)

test-faults: ## every allocation fails once: training, saving, loading, the prompt
	$(AGAIN) SAN=address build/asan/faults/mtlua
	build/asan/faults/mtlua spec/run.lua faults

test-soak: ## long loops at full length: memory stays where it is
	$(AGAIN) here
	MYTENSOR_SOAK=1 build/mtlua spec/run.lua soak

FUZZ_CALLS = 1000000
fuzz: ## a million random calls under AddressSanitizer, in runs of 50,000
	$(AGAIN) SAN=address build/asan/mtlua
	@mkdir -p build/fuzz; seed=$${MYTENSOR_FUZZ_SEED:-$$(date +%s)}; left=$(FUZZ_CALLS); \
	while [ $$left -gt 0 ]; do n=$$((left < 50000 ? left : 50000)); \
	  MYTENSOR_FUZZ_SEED=$$seed MYTENSOR_FUZZ_CALLS=$$n MYTENSOR_FUZZ_LOG=build/fuzz/calls \
	    build/asan/mtlua spec/run.lua spec/fuzz_spec.lua >build/fuzz/calls.out 2>&1 || \
	    { head -60 build/fuzz/calls.out; tail -2 build/fuzz/calls; exit 1; }; \
	  echo "seed $$seed: $$n calls"; seed=$$((seed + 1)); left=$$((left - n)); done

FUZZ_SECONDS = 60
fuzz-readers: ## a minute of libFuzzer for each reader of files and for the formula parser
	$(AGAIN) deps NEED="$(DEPS_BUILD) $(DEPS_FUZZ)"
	$(AGAIN) $(FUZZERS)
	@set -e; for f in $(FUZZERS); do n=$$(basename $$f); mkdir -p build/fuzz/corpus/$$n; \
	  echo "$$n"; $$f -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 \
	    -rss_limit_mb=1024 -detect_leaks=0 -verbosity=0 -print_final_stats=1 \
	    -artifact_prefix=build/fuzz/$$n- build/fuzz/corpus/$$n spec/fuzzers/corpus/$$n \
	    >build/fuzz/$$n.log 2>&1 || { tail -40 build/fuzz/$$n.log; exit 1; }; \
	  grep -E 'number_of_exec|average_exec|new_units' build/fuzz/$$n.log; done

# One Lua state has one thread, but for the kernels': some specs suffice.
test-tsan: ## states that train in threads, and kernels, under ThreadSanitizer
	$(AGAIN) SAN=thread build/tsan/mtlua build/tsan/threads
	TSAN_OPTIONS=halt_on_error=1 build/tsan/threads 6 1
	TSAN_OPTIONS=halt_on_error=1 build/tsan/threads 3 2
	OMP_NUM_THREADS=4 TSAN_OPTIONS=halt_on_error=1 build/tsan/mtlua spec/run.lua \
	  programs memory spec/lua/layers_spec.lua spec/ops/reduce_spec.lua ops/conv ops/half \
	  fuse fuse_shapes fuse_rows

test-cuda: ## the specs on the GPU; a machine without one fails
	@$(if $(CUDA_SRC),:,echo "test-cuda: this tree has no CUDA kernels yet"; exit 1)
	$(AGAIN) all
	MYTENSOR_REQUIRE_CUDA=1 build/mtlua $(SPECS)

TOOLS =
test-cuda-sanitize: ## every op's cases on the GPU under compute-sanitizer: TOOLS=memcheck
	$(AGAIN) all
	sh spec/support/sanitize.sh $(TOOLS)

DEVICE      = cpu
BENCH_FLAGS =
bench: ## the rows of spec/bench beside PyTorch's: DEVICE=cuda on the GPU
	$(AGAIN) $(if $(filter cuda%,$(DEVICE)),all,here)
	python3 spec/bench/run.py --device $(DEVICE) $(BENCH_FLAGS)

coverage: ## run the specs, print for each C file how many of its lines they reach
	@find build/cov -name '*.gcda' -delete 2>/dev/null || true
	$(AGAIN) SAN=coverage build/cov/mtlua
	build/cov/mtlua $(SPECS)
	@find build/cov -name '*.gcda' -exec gcov -n {} + 2>/dev/null | \
	  sed -n "s/^File '\(.*\)'/\1/p; s/^Lines executed:\(.*\)% of \(.*\)/\1 \2/p" | \
	  awk '/^[0-9.]+ [0-9]+$$/ { if (f ~ /^(kernels|runtime)/) { \
	    printf("%6.1f%% of %5d  %s\n", $$1, $$2, f) | "sort -n"; n += $$2; hit += $$1 * $$2 } f = ""; next } \
	    { f = $$1 } END { close("sort -n"); \
	    printf "%6.1f%% of %5d  in all\n", n ? hit / n : 0, n }'

# ---- installing ------------------------------------------------------------------------
.PHONY: deps print-deps install install-module embed bundle
NEED = $(DEPS_BUILD) $(DEPS_TEST)
deps: ## install what building and testing need (Debian, Ubuntu)
	@if ! command -v dpkg-query >/dev/null; then \
	  for f in $(LUA_INCDIR)/lua.h $(LUA_STATIC) /usr/include/zlib.h; do \
	    [ -e "$$f" ] || { echo "missing: $$f; packages on Debian: $(NEED)"; exit 1; }; \
	  done; exit 0; \
	fi; \
	have=$$(dpkg-query -W -f '$${Package} $${db:Status-Status}\n' $(NEED) 2>/dev/null | \
	  sed -n 's/ installed$$//p' | tr '\n' ' '); \
	missing=; for p in $(NEED); do case " $$have" in *" $$p "*) ;; \
	  *) missing="$$missing $$p";; esac; done; \
	[ -n "$$missing" ] || exit 0; \
	if [ $$(id -u) = 0 ]; then sudo=; elif sudo -n true 2>/dev/null; then sudo="sudo -n"; \
	else echo "these packages are missing; please type"; \
	  echo "  sudo apt-get install$$missing"; exit 1; fi; \
	echo "installing$$missing"; export DEBIAN_FRONTEND=noninteractive; \
	$$sudo apt-get -q update && \
	for p in $(DEPS_WANTED); do \
	  if apt-cache show $$p >/dev/null 2>&1; then missing="$$missing $$p"; fi; done && \
	$$sudo apt-get -q install -y --no-install-recommends $$missing

print-deps:
	@echo $(DEPS_BUILD) $(DEPS_TEST) $(DEPS_DEMO) $(DEPS_LINT)

install-module:
	$(AGAIN) module
	install -d $(DESTDIR)$(MODULE_DIR)
	install -m 755 build/mytensor.so $(DESTDIR)$(MODULE_DIR)
	$(if $(PLUGIN),$(AGAIN) plugin)
	$(if $(PLUGIN),install -d $(DESTDIR)$(PLUGIN_DIR))
	$(if $(PLUGIN),install -m 755 $(PLUGIN) $(DESTDIR)$(PLUGIN_DIR))

install: install-module ## install under PREFIX (and DESTDIR): host, module, manual
	$(AGAIN) all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include \
	  $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 build/mtlua $(DESTDIR)$(PREFIX)/bin
	install -m 644 runtime/mytensor.h $(DESTDIR)$(PREFIX)/include
	install -m 644 runtime/mtlua.1 $(DESTDIR)$(PREFIX)/share/man/man1
	printf '%s\n' 'prefix=$(PREFIX)' 'includedir=$${prefix}/include' \
	  'moduledir=$(MODULE_DIR)' '' 'Name: mytensor' \
	  'Description: tensors and automatic differentiation for programs that embed Lua' \
	  'Version: $(VERSION)' 'Cflags: -I$${includedir}' \
	  'Libs: -L$${moduledir} -Wl,-rpath,$${moduledir} -l:mytensor.so' \
	  >$(DESTDIR)$(PREFIX)/lib/pkgconfig/mytensor.pc

embed: ## build and run examples/embed: a C program with Lua and mytensor inside
	$(AGAIN) module
	$(CC) $(WARNINGS) -O2 -Iruntime -isystem $(LUA_INCDIR) -o build/embed \
	  examples/embed/embed.c -Wl,-E -Wl,--whole-archive $(LUA_STATIC) \
	  -Wl,--no-whole-archive -Lbuild -l:mytensor.so -Wl,-rpath,'$$ORIGIN' -lm -ldl
	build/embed

# What a machine with a GPU and neither Lua nor busted needs to run the specs.
BUNDLE = $(B)/bundle
bundle: ## one folder with the host, the plugin for all GPUs, busted and the specs: build/bundle
	$(AGAIN) here
	$(if $(PLUGIN),$(AGAIN) plugin CUDA_ARCHS="$(BUNDLE_ARCHS)" NVO=$(O)/bundle \
	  NVCOMPRESS="$$($(NVCC) --help | grep -q compress-mode && echo -compress-mode=size)")
	sh spec/support/bundle.sh $(BUNDLE)

# ---- keeping house ---------------------------------------------------------------------

.PHONY: lint lint-docs format docs clean help
GENDOCS     = spec/support/gendocs.lua
GENERATED   = kernels/OPS.md lua/API.md lua/PORTING.md lua/mytensor/meta.lua
C_FILES     = $(shell git ls-files '*.c' '*.h' '*.inc' '*.cpp' '*.cu' '*.cuh')
SHELL_FILES = $(shell git ls-files '*.sh' .ci/run)
docs: ## generate kernels/OPS.md, lua/API.md, lua/PORTING.md and lua/mytensor/meta.lua
	$(AGAIN) here
	build/mtlua $(GENDOCS)

lint: ## includes, lengths, formatting, Lua, shell, generated documentation
	$(AGAIN) deps NEED="$(DEPS_BUILD) $(DEPS_LINT)"
	$(LUA) spec/support/lint.lua
	@$(CLANG_FORMAT) --version | grep -q 'version 14' || \
	  { echo "lint: $(CLANG_FORMAT) is not version 14"; exit 1; }
	$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)
	luacheck -q .
	for f in $(SHELL_FILES); do bash -n $$f || exit 1; done
	@$(if $(wildcard $(GENDOCS)),:,echo "lint: $(GENDOCS) is not there: docs not compared")
	$(if $(wildcard $(GENDOCS)),$(AGAIN) lint-docs)

# What the documentation should be is made in place: a difference is mended by the way.
lint-docs:
	@rm -rf build/docs && mkdir -p build/docs
	@for f in $(GENERATED); do cp $$f build/docs/ 2>/dev/null || true; done
	$(AGAIN) docs
	@for f in $(GENERATED); do cmp -s $$f build/docs/$$(basename $$f) || \
	  { echo "lint: $$f was stale and is regenerated: commit it"; exit 1; }; done

format: ## let clang-format rewrite the C and CUDA files
	$(CLANG_FORMAT) -i $(C_FILES)

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | \
	  while IFS='|' read -r t d; do printf '%-18s %s\n' "$$t" "$$d"; done
