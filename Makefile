# A fresh machine needs Python 3.10 or later, g++ and make. Everything else goes to $(VENV).
#
#   make demo     build, train a small network on the device and on native CPU, compare (demo-output/)
#   make build    only that
#   make wheel    wheels for this Python and TORCH_VERSION, and the sdist (dist/)
#   make test     build, C++ tests, Python tests, conformance of the reference devices, tests of vendors' projects
#   make test-torch TORCH_VERSION=2.15.0    the same with another torch, beside this one (build/torch-2.15.0/)
#   make test-opencl    the same for the device ocl, on the OpenCL drivers that are installed; DRIVER=intel: on Intel's
#   make test-npu, make test-cuda    the same for the devices npu and xcuda, on simulations
#   make check    conformance of DEVICE, with a report (check-output/)
#   make upstream CHECKOUT=PATH    PyTorch's own tests from that checkout, on DEVICE
#   make models    a training step of the architectures of Transformers and Diffusers, on DEVICE and the CPU
#   make lint     formatting, types, spelling; builds nothing
#   make bench    what the device costs against native CPU
#   make docs     the documentation, as HTML (docs/_build/html/index.html)
#   make drift NEW=2.15.0    what that torch changes against this one, and where it concerns torch_backend; OLD=2.14.0
#   make first-hour    what README tells a new user to type, in an empty folder, with the times (minutes)
#   make clean    remove what was built; make distclean: the virtual environment too
#
# Variables: DEVICE, TORCH_VERSION, PYTHON, VENV, BUILD, JOBS, and TORCH_INDEX, a package index to take torch from:
# PyTorch's own for CPU has a much smaller torch than the default one. TEST is what test-torch makes: test, test-conformance, ...

PYTHON ?= python3
TORCH_VERSION ?= 2.13.0
TORCH_INDEX ?=
VENV ?= .venv
DEVICE ?= xcpu
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
BUILD ?= build/make
TEST ?= test
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
# Python compiles what is imported, when it is. To compile all of torch would take longer than to install it; tests start
# Python thousands of times, where it may have been told not to keep what it has compiled.
PIP := $(PY) -m pip --quiet install --no-compile --constraint $(VENV)/constraints.txt
STAMPS := $(VENV)/.stamps
CXX_FILES = $(shell find include csrc backends torch_backend/csrc test benchmarks examples -name golden -prune -o \
	-name build -prune -o \
	\( -name '*.h' -o -name '*.c' -o -name '*.cpp' \) -print)
CMAKE_FILES = $(shell find . -name build -prune -o -path './.*' -prune -o \
	\( -name CMakeLists.txt -o -name '*.cmake' \) -print)
# What a build depends on. Python modules are used where they lie. A stamp of a build is as old as its beginning: what is
# edited meanwhile is built again.
SDK := $(shell find include backends/common -type f -not -name '*.md')
SOURCES := CMakeLists.txt pyproject.toml kit/pyproject.toml $(SDK) $(shell find csrc backends/fake backends/cpu \
	torch_backend/csrc codegen cmake -type f -not -path '*/__pycache__/*' -not -name '*.md')
TEST_SOURCES := $(shell find test/cpp -type f)

.DELETE_ON_ERROR:
.PHONY: help demo check build wheel first-hour test test-cpp test-python test-generated test-opinfo test-compiled-opinfo \
	test-conformance test-kit test-vendors upstream test-opencl test-npu test-cuda test-ecosystem ecosystem models test-torch \
	test-sanitize test-sanitize-devices test-sanitize-core same-devices \
	lint lint-ruff lint-format lint-mypy lint-imports lint-clang-format lint-cmake lint-codespell bench docs drift clean distclean

help:
	@sed -n '3,18s/^#   //p' Makefile

# ---- environment ----

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

$(STAMPS)/for-%: pyproject.toml kit/pyproject.toml .ci/requirements.py $(TORCH)
	@echo "Installing what is needed for: $*"
	@$(PY) .ci/requirements.py $* > $(VENV)/requirements-$*.txt
	@$(PIP) --requirement $(VENV)/requirements-$*.txt
	$(if $(filter test ecosystem,$*),@$(PY) -m compileall -qq -j $(JOBS) $(VENV)/lib || true)
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

# ---- tests ----

# All run, whatever the first one says; pytest's last line comes last.
test: $(STAMPS)/built-tests $(STAMPS)/for-test
	@failed=0; \
	$(MAKE) --no-print-directory test-cpp || failed=1; \
	$(MAKE) --no-print-directory test-conformance || failed=1; \
	$(MAKE) --no-print-directory test-kit || failed=1; \
	$(MAKE) --no-print-directory test-vendors || failed=1; \
	$(MAKE) --no-print-directory test-generated || failed=1; \
	$(MAKE) --no-print-directory test-python || failed=1; \
	exit $$failed

test-cpp: $(STAMPS)/built-tests
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error --parallel $(JOBS)

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

# The smallest device first: what the core does by default has to work without anything that xcpu offers.
# One thread of OpenMP for each: threads of several processes that wait for each other's cores double the processor time.
PYTEST = OMP_NUM_THREADS=1 $(PY) -m pytest -q --numprocesses $(JOBS)
FAKE_TESTS := $(patsubst %,test/python/test_%.py,amp autocast_policies backward_threads custom_operators device \
	fallback_api memory metadata operators python_kernels random rerouting structured)

ECOSYSTEM_TESTS := $(patsubst %,test/python/test_%.py,cuda_scripts ecosystem scale_out)

# Not the fused encoder layer and the checks of weights, which CANN's operators do not have.
NPU_GENERATED_TESTS := $(patsubst %,test/generated/test_%.py,training generation) \
	-k 'not test_dropout_trains and not refuses'
# All but what is compiled: the lists of that are of other devices.
CUDA_GENERATED_TESTS := test/generated --ignore=test/generated/test_compiled_opinfo.py
OCL_TESTS := $(patsubst %,test/python/test_%.py,device fallback_api memory operators random)

# Without the first line, a device that cannot be activated would only skip the tests that need one.
test-python: $(STAMPS)/built $(STAMPS)/for-test
	@TORCH_BACKEND=$(DEVICE) $(PY) -m torch_backend info > /dev/null
	@failed=0; \
	echo "Python tests on fake"; TORCH_BACKEND=fake TORCH_BACKEND_FAKE_DEVICES=2 $(PYTEST) $(FAKE_TESTS) || failed=1; \
	echo "Python tests on $(DEVICE)"; TORCH_BACKEND=$(DEVICE) $(PYTEST) test/codegen test/python \
	$(addprefix --ignore=,$(ECOSYSTEM_TESTS)) || failed=1; \
	exit $$failed

# The tests of the conformance kit itself.
test-kit: $(STAMPS)/built $(STAMPS)/for-test
	@echo "Tests of the conformance kit, on $(DEVICE)"; TORCH_BACKEND=$(DEVICE) $(PYTEST) kit/tests

# Kernels that the device compiles: on xcpu, whose items run one after the other, and side by side as on a GPU.
CUDA_SIMULATION := $(abspath backends/cuda/build/simulation)
OCL_GENERATED_TESTS := $(patsubst %,test/generated/test_%.py,copies ranges training) \
	$(addprefix test/generated/test_compile.py::test_,same_as_eager functions_are_exact_everywhere \
	indices_out_of_range_raise half_types_round_as_asked)

# All samples of PyTorch's list of operators, where test-generated tries one of each. Not part of "test".
test-opinfo: $(STAMPS)/built $(STAMPS)/for-test
	@OPINFO=all TORCH_BACKEND=xcpu TORCH_BACKEND_XCPU_MODULES=1 $(PYTEST) test/generated/test_opinfo.py

# Likewise through torch.compile, one sample of each: on what WAY says, "TORCH_BACKEND=xcpu TORCH_BACKEND_XCPU_MODULES=1"
# for kernels, and by default as code for the CPU on the device's memory. An hour and a half of processor time, then half
# an hour with what inductor has cached.
WAY ?= TORCH_BACKEND=xcpu TORCH_BACKEND_XCPU_MODULES=0
test-compiled-opinfo: $(STAMPS)/built $(STAMPS)/for-test
	@OPINFO=all $(WAY) $(PYTEST) test/generated/test_compiled_opinfo.py

test-generated: $(STAMPS)/built $(STAMPS)/for-test
	@failed=0; export TORCH_BACKEND=xcpu TORCH_BACKEND_XCPU_MODULES=1; \
	echo "Generated kernels on xcpu"; $(PYTEST) test/generated || failed=1; \
	echo "Operators compiled for the host"; TORCH_BACKEND_XCPU_MODULES=0 \
	$(PYTEST) test/generated/test_compiled_opinfo.py || failed=1; \
	if [ -d backends/cuda ]; then echo "Generated kernels on a simulated GPU, late"; $(SIMULATION) backends/cuda && \
	TORCH_BACKEND=xcuda TORCH_BACKEND_XCUDA_LIBRARY_PATH=$(CUDA_SIMULATION) CUDA_SIM_DELAY_US=0-100 \
	$(PYTEST) $(CUDA_GENERATED_TESTS) || failed=1; fi; \
	if TORCH_BACKEND=ocl $(PY) -m torch_backend info > /dev/null 2>&1; then \
	echo "Generated kernels on ocl"; TORCH_BACKEND=ocl $(PYTEST) $(OCL_GENERATED_TESTS) || failed=1; \
	$(PY) -W ignore test/chaos faults --device ocl --count 200 --threads 4 > $(STAMPS)/chaos.log 2>&1 || \
	{ cat $(STAMPS)/chaos.log; failed=1; }; \
	else echo "Generated kernels on ocl: not run, there is no OpenCL driver"; fi; \
	exit $$failed

# Not part of "test": the libraries are large, and processes of many ranks take minutes.
test-ecosystem: $(STAMPS)/built $(STAMPS)/for-ecosystem
	@TORCH_BACKEND=$(DEVICE) $(PYTEST) $(ECOSYSTEM_TESTS)

# The page of the documentation that says what was run. CHECKOUTS="transformers=PATH lightning=PATH": with their tests.
ecosystem: $(STAMPS)/built $(STAMPS)/for-ecosystem
	@$(PY) .ci/ecosystem.py $(DEVICE) $(CHECKOUTS:%=--checkout %) > $(BUILD)/ecosystem.md
	@cp $(BUILD)/ecosystem.md docs/reference/ecosystem_results.md && cat docs/reference/ecosystem_results.md

# Not part of "test": all are hundreds. ARGUMENTS="--only 'qwen*' --compile 5 --minutes 15" are those of .ci/models.py.
models: $(STAMPS)/built $(STAMPS)/for-ecosystem
	@TORCH_BACKEND_XCPU_MODULES=1 $(PY) .ci/models.py --device $(DEVICE) --jobs $(JOBS) --json $(BUILD)/models.json $(ARGUMENTS)

# The conformance kit on the smallest device, the complete one, and that with streams and all else that it does not do by
# default. The reports are what .ci/compatibility.py writes into the documentation.
KIT = $(PY) -m torch_backend check --jobs $(JOBS)

test-conformance: $(STAMPS)/built $(STAMPS)/for-test
	@failed=0; \
	echo "Conformance of fake"; $(KIT) --json $(BUILD)/conformance-fake.json fake --quick --option devices=2 || failed=1; \
	echo "Conformance of xcpu, asynchronous"; $(KIT) --json $(BUILD)/conformance-async.json xcpu --quick \
	--option async=1 --option ccl=1 --option ipc=1 || failed=1; \
	echo "Conformance of $(DEVICE)"; $(KIT) --json $(BUILD)/conformance-$(DEVICE).json $(DEVICE) || failed=1; \
	exit $$failed

# What the CI of each vendor would run: tests in C++, where there are some, and in Python.
test-vendors: $(STAMPS)/built $(STAMPS)/for-test
	@failed=0; for vendor in $(VENDORS); do $(MAKE) --no-print-directory test-vendor-$$vendor || failed=1; done; \
	exit $$failed

VENDOR_TESTS = $(BUILD)/vendors/$*-tests
test-vendor-%: $(STAMPS)/built $(STAMPS)/for-test
	@echo "Tests of backends/$*"
	@test ! -d backends/$*/test/cpp || .ci/vendor cmake -S backends/$* -B $(VENDOR_TESTS) -DTB_BUILD_TESTS=ON \
	-DPython_EXECUTABLE=$(abspath $(PY))
	@test ! -f $(VENDOR_TESTS)/CTestTestfile.cmake || { .ci/vendor cmake --build $(VENDOR_TESTS) && \
	ctest --test-dir $(VENDOR_TESTS) --output-on-failure --parallel $(JOBS); }
	@$(PYTEST) backends/$*/test

# It fails if something fails on the device alone that is not in the list kept for it, or a listed test passes. The list
# belongs to one checkout, which it names, and to these files; FILES= is all of them, QUICK= all tests of each.
QUICK ?= --quick
FILES ?= $(addsuffix .py,$(addprefix test_,autograd functionalization_of_rng_ops indexing modules native_mha nn ops \
	reductions shape_ops sort_and_select tensor_creation_ops torch type_promotion unary_ufuncs view_ops) \
	$(addprefix nn/test_,dropout embedding multihead_attention parametrization))
upstream: $(STAMPS)/built $(STAMPS)/for-test
	@$(KIT) $(DEVICE) --upstream $(or $(CHECKOUT),$(error CHECKOUT is not set: make upstream CHECKOUT=../pytorch)) \
	$(QUICK) $(FILES:%=--only %) \
	$(addprefix --expectations ,$(wildcard kit/tests/expected_upstream_$(DEVICE).toml)) \
	--json $(BUILD)/upstream-$(DEVICE).json --html $(BUILD)/upstream-$(DEVICE).html

# Not part of "test", but for the first levels: it takes half an hour. In both memory modes; PoCL shows the processor
# twice, so that there are two devices.
test-opencl: export POCL_DEVICES ?= pthread pthread
test-opencl: $(STAMPS)/built $(STAMPS)/for-test
	@TORCH_BACKEND=ocl $(PY) -m torch_backend info > /dev/null
	@failed=0; $(MAKE) --no-print-directory test-vendor-opencl || failed=1; \
	for memory in buffer svm; do echo "Conformance of ocl, memory $$memory"; \
	$(KIT) ocl --quick --option memory=$$memory || failed=1; done; \
	echo "Python tests on ocl"; TORCH_BACKEND=ocl $(PYTEST) $(OCL_TESTS) || failed=1; \
	echo "Generated kernels on ocl"; TORCH_BACKEND=ocl $(PYTEST) $(OCL_GENERATED_TESTS) || failed=1; \
	exit $$failed

# Intel's driver for CPUs, from PyPI: 0.8 GB in build/, in place of the drivers that are installed.
ifeq ($(DRIVER),intel)
INTEL := $(abspath build/intel-opencl)
test-opencl: export OCL_ICD_VENDORS := $(INTEL)/vendors
test-opencl: export LD_LIBRARY_PATH := $(INTEL)/lib:$(LD_LIBRARY_PATH)
test-opencl: $(INTEL)/vendors/intel.icd

$(INTEL)/vendors/intel.icd: $(TORCH)
	@$(PY) -m pip --quiet install --ignore-installed --prefix $(INTEL) intel-opencl-rt intel-cmplr-lib-rt
	@mkdir -p $(@D) && echo $(INTEL)/lib/libintelocl.so > $@
endif

# On the simulation of backends/npu: no Ascend device and nothing of CANN takes part.
SIMULATION = $(PY) -m torch_conformance.simulation
VARIANTS = $(PY) -m torch_conformance.variants
test-npu: export TORCH_BACKEND_NPU_PATH := $(abspath backends/npu/build/simulation)
test-npu: $(STAMPS)/built $(STAMPS)/for-test
	@$(SIMULATION) backends/npu
	@failed=0; echo "npu, on a simulated AscendCL: no Ascend device takes part"; \
	$(MAKE) --no-print-directory test-vendor-npu || failed=1; \
	echo "Models without a fallback"; TORCH_BACKEND=npu $(PYTEST) $(NPU_GENERATED_TESTS) || failed=1; \
	echo "Conformance of npu"; ASCEND_SIM_DELAY_US=0-300 $(KIT) npu --quick || failed=1; \
	echo "Faults of the plugin"; $(VARIANTS) backends/npu || failed=1; \
	exit $$failed

# On the simulated driver of backends/cuda: no GPU and nothing of CUDA takes part.
test-cuda: export TORCH_BACKEND_XCUDA_LIBRARY_PATH := $(CUDA_SIMULATION)
test-cuda: $(STAMPS)/built $(STAMPS)/for-test
	@$(SIMULATION) backends/cuda
	@failed=0; echo "xcuda, on a simulated CUDA driver: no GPU takes part"; \
	$(MAKE) --no-print-directory test-vendor-cuda || failed=1; \
	echo "Generated kernels"; TORCH_BACKEND=xcuda $(PYTEST) $(CUDA_GENERATED_TESTS) || failed=1; \
	echo "Faults of the plugin"; $(VARIANTS) backends/cuda || failed=1; \
	echo "Conformance of xcuda"; CUDA_SIM_DELAY_US=0-300 $(KIT) xcuda --quick || failed=1; \
	exit $$failed

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
