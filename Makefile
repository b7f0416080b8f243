# Targets that need root ask for it (sudo, else su); nothing else runs as root.
# Go and make are expected, the rest is installed.

SHELL := /bin/sh
B := internal/build

# Debian packages. The race detector links C. Peers are what perf measures beside
# Baton; the servers among them are installed and not started.
RUN_NEEDS := ca-certificates
PEERS := haproxy nginx libnginx-mod-stream nftables
TEST_NEEDS := $(RUN_NEEDS) gcc libc6-dev iproute2 etcd-server $(PEERS)
GENERATE_NEEDS := $(RUN_NEEDS) clang-14 llvm-14
VM_NEEDS := $(RUN_NEEDS) qemu-system-x86 kmod xz-utils iproute2 nftables

# The whole suite stays below this for ever; a package may take PACKAGE_TIME.
SUITE_TIME := 25m
PACKAGE_TIME := 20m

FUZZ_TIME := 1m
PKG := ./...

.PHONY: all build image generate test test-vm soak perf bench fuzz lint demo clean

all: build

build:
	CGO_ENABLED=0 go build -o baton ./cmd/baton

# The image as an archive that podman, docker and ctr load, made with nothing but Go.
# IMAGE takes flags: make image IMAGE="-name docker.io/library/baton:v1 -arch arm64".
IMAGE :=
image:
	go run ./deploy/container $(IMAGE)

# The committed BPF objects, from their C sources. Building needs no compiler but Go's.
generate:
	$(B)/setup.sh $(GENERATE_NEEDS)
	go generate ./offload/bpf

# An API server for the tests that want one: built before they run, as it takes four minutes,
# and kept in the user's cache directory.
KUBE = $(if $(filter ./... ./internal/...,$(PKG))$(findstring e2e,$(PKG)),$$(go run ./internal/testkube/build))

# The whole suite: race detector, root, hosts in network namespaces. ARGS takes flags of
# go test: make test PKG=./lb/relay ARGS="-run TestGuard -v".
ARGS :=
test:
	$(B)/setup.sh $(TEST_NEEDS)
	kube=$(KUBE) && BATON_TESTKUBE=$$kube timeout --foreground $(SUITE_TIME) \
		$(B)/go-test.sh -race -count=1 -timeout $(PACKAGE_TIME) $(ARGS) $(PKG)

# What must hold on other kernels (internal/testvm/tests.txt), and the machines for it.
# VM takes flags: go doc ./internal/testvm/vmtest.
KERNELS := 6.1,6.12
VM :=
test-vm:
	$(B)/setup.sh $(VM_NEEDS)
	BATON_TEST_VM=1 go test -count=1 -p 1 -timeout 15m ./internal/testvm/...
	go run ./internal/testvm/vmtest -kernels $(KERNELS) $(VM)

# The long tests, each behind BATON_SOAK. They measure, so without the race detector.
soak:
	$(B)/setup.sh $(TEST_NEEDS)
	BATON_SOAK=1 $(B)/go-test.sh -v -count=1 -p 1 -run Soak -timeout 2h $(PKG)

bench:
	$(B)/setup.sh $(TEST_NEEDS)
	$(B)/go-test.sh -run '^$$' -bench . -benchmem -p 1 -timeout 1h $(PKG)

# Baton beside its peers, about 15 minutes on a machine that does nothing else.
# PERF takes flags: go doc ./perf.
PERF :=
perf:
	$(B)/setup.sh $(TEST_NEEDS)
	$(MAKE) build
	go run -exec $(B)/as-root.sh ./perf -baton ./baton $(PERF)

fuzz:
	$(B)/fuzz.sh $(FUZZ_TIME)

lint:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }
	go vet ./...
	go tool staticcheck ./...

# The whole story on one machine in one minute.
demo:
	$(B)/setup.sh $(RUN_NEEDS)
	$(MAKE) build
	$(B)/as-root.sh ./baton demo

clean:
	rm -f baton baton-image.tar
	find . -name '*.test' -type f -delete
