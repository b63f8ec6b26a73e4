# The front door. Everything real is in CMakeLists.txt and tools/.
#
#   make            build the release preset: build/release/radish
#   make run        build the program, then serve the shipped model on 127.0.0.1:30000
#   make test       every test, then again under sanitizers (needs no GPU)
#   make test-long  the same in long forms, fuzzing, clang, aarch64 (qemu), musl and packages: hours; PARTS="fuzz deb"
#                   some of it (tools/run-long.sh)
#   make bench      speed, each figure beside its limit; ARGS="trace model" some of it (tools/run-bench.sh)
#   make install    program, libradish and headers; PREFIX=/usr/local, DESTDIR as usual
#   make uninstall  what make install put there
#   make python     the Python package in build/release/python: use it there with PYTHONPATH
#   make wheel      the same as a wheel in build, for Python 3.11 and later
#   make test-peers runs the unit tests of PEER=DIR, a checkout of SGLang or mini-sglang, on libradish
#   make deb        Debian packages in build/deb: radish (a service), libradish0, libradish-dev, python3-radish
#   make docs       the documentation as pages for a browser, in build/docs
#   make dist       build/radish-VERSION.tar.xz of the last commit
#
# Debian packages that are missing are installed first (tools/install-deps.sh); for the tests also
# clients from npm (tools/install-clients.sh), for the long ones coding agents.
PREFIX ?= /usr/local
MODEL  ?= models/radish-tiny.gguf
HOST   ?= 127.0.0.1
PORT   ?= 30000
JOBS   ?= $(shell tools/cpus.sh)

.PHONY: all run test test-long bench install uninstall python wheel test-peers deb docs dist fuzz clean help

all: build/deps-build
	@tools/build.sh release $(JOBS)

run: build/deps-build
	@tools/build.sh release $(JOBS) radish_program
	build/release/radish serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

test: build/deps-test build/clients/done
	@tools/run-tests.sh $(JOBS)

test-long: build/deps-test build/clients/done build/agents/done build/deps-fuzz build/deps-long \
           build/deps-deb
	@JOBS=$(JOBS) tools/run-long.sh $(PARTS)

fuzz: build/deps-fuzz
	@tools/run-fuzz.sh $(or $(SECONDS),60)

bench: build/deps-bench all
	@tools/run-bench.sh $(ARGS)

install: all
	@cmake --install build/release --prefix "$(PREFIX)"

uninstall:
	@tools/uninstall.sh "$(DESTDIR)"

python: build/deps-python
	@tools/build.sh release $(JOBS) python

test-peers: python
	@tools/test-peers.py

wheel: python
	@tools/make-wheel.py build/release/python build

deb: build/deps-deb
	@tools/make-deb.sh $(JOBS)

docs:
	@/usr/bin/python3 tools/make-docs.py

dist:
	@mkdir -p build
	@name=radish-$$(tools/version.sh) && \
	    git archive --prefix=$$name/ HEAD | xz -T0 >build/$$name.tar.xz && ls -l build/$$name.tar.xz

# A stamp per package list: looked at again when the list changes.
build/deps-%: tools/install-deps.sh
	@tools/install-deps.sh $*
	@mkdir -p build && touch $@

# The tool makes the stamp, and not where npm is missing: it looks again next time.
build/%/done: tests/%/package-lock.json tools/install-clients.sh
	@tools/install-clients.sh $*

clean:
	rm -rf build

help:
	@sed -n 's/^#   \(make\)/\1/p; s/^#   *\(PREFIX\)/\1/p' Makefile
