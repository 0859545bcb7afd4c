# Everything a person does with this repository. `make` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# The name of the image where nobody gives one: no registry can serve it, and so nobody else's image can stand
# behind it.
PLACEHOLDER := registry.invalid/traffic-operator
# The image that is built, pushed and deployed: IMG=registry.example.com/traffic-operator:0.1.0
IMG ?= $(PLACEHOLDER):$(VERSION)
IMG_GIVEN := $(if $(filter file,$(origin IMG)),no,yes)
# What `make deploy` applies: kube-prometheus, kube-prometheus-stack, or standalone for clusters without a Prometheus.
OVERLAY ?= kube-prometheus
# Where `make deploy` puts it.
NAMESPACE ?= traffic-operator-system
KUBECTL ?= kubectl
# Where `make plugin` installs.
PREFIX ?= $(HOME)/.local
# The programs of the image are static and reproducible: hack/static has the settings, and runs a command with them.
IMAGE_TARGET ?= $(shell uname -m)-unknown-linux-gnu
STATIC := hack/static $(IMAGE_TARGET)
BINARY := target/image/$(IMAGE_TARGET)/release/traffic-operator
# What runs in the pods, which has a profile of its own: the smallest.
AGENT := target/image/$(IMAGE_TARGET)/agent/traffic-operator-agent
ARCHIVE ?= .lab/image/traffic-operator.tar
LAB := cargo run --quiet --bin lab --
BENCH := cargo run --package bench --
RELEASED := $(STATIC) cargo run --release --target $(IMAGE_TARGET) --target-dir target/image --package bench --
# What the demos run: each library compiled once, and hardly optimized.
DEMO := target/$(IMAGE_TARGET)/demo
TOUR = E2E_IMAGE=.lab/image/demo.tar E2E_OPERATOR=$(DEMO)/traffic-operator $(DEMO)/e2e
# The decisions optimized, everything else as in every other test: minutes less to build than a release.
OPTIMIZED := CARGO_INCREMENTAL=0 cargo test \
	$(foreach crate,traffic-operator-core lab,--config profile.test.package.$(crate).opt-level=3) \
	--config profile.dev.package.traffic-operator.opt-level=1 --config profile.dev.package.traffic-operator.codegen-units=8

##@ Everyday

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-zA-Z_-]+:.*##/ {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: try try-down
try: ## Try it without root: on a kind cluster, or without kind and Docker against a made-up history.
	@KUBECTL="$(KUBECTL)" hack/try
try-down: ## Remove the cluster of `make try`.
	@hack/try --down

.PHONY: demo
demo: demo-programs ## Run the product's main job on a real cluster; PASS or FAIL. KEEP=1 leaves it running.
	$(TOUR) demo $(if $(KEEP),--keep)

.PHONY: demo-prober
demo-prober: demo-programs ## Run the network prober on a real cluster; PASS or FAIL. KEEP=1 leaves it running.
	$(TOUR) prober $(if $(KEEP),--keep)

.PHONY: demo-swarm
demo-swarm: demo-programs ## Hand streams over between workers on a real cluster; PASS or FAIL. KEEP=1 leaves it running.
	$(TOUR) swarm $(if $(KEEP),--keep)

.PHONY: demo-reflectors
demo-reflectors: demo-programs ## Replace route reflectors under real BGP; PASS or FAIL. PART=short; KEEP=1 leaves it running until Ctrl-C.
	$(TOUR) reflectors $(if $(KEEP),--keep) $(if $(PART),--part $(PART))

.PHONY: demo-all
demo-all: demo-programs ## Run all four kinds on one cluster, each claim measured independently; PASS or FAIL. KEEP=1 leaves it running.
	$(TOUR) all $(if $(KEEP),--keep)

.PHONY: demo-programs
demo-programs: protoc
	@# Go and Rust beside each other, Rust first, whose last crates leave a processor to Go. What an act needs beyond
	@# these programs, it builds itself.
	@nice -n 10 lab/tools/build .lab/cache/bin etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy \
		coredns prometheus node_exporter pause $(PROGRAMS) & \
	$(STATIC) cargo build --profile demo --target $(IMAGE_TARGET) \
		$(foreach program,traffic-operator traffic-operator-agent e2e image,--package $(program) --bin $(program)); \
	wait $$!
	$(DEMO)/image --uncompressed --binary $(DEMO)/traffic-operator --agent $(DEMO)/traffic-operator-agent \
		--out .lab/image/demo.tar

.PHONY: e2e
e2e: image ## Play everything on real nodes, the demos first (root); PASS or FAIL for each claim; ACTS="judging readme".
	cargo run --quiet --package e2e -- run --operator $(BINARY) $(ACTS)

# What CI plays: the programs of the demos, which are built in a third of the time of a release.
.PHONY: acts
acts: PROGRAMS := prometheus-operator prometheus-config-reloader
acts: demo-programs ## Play these acts with the programs of the demos (root): ACTS="judging swarm"; cargo run -p e2e -- list
	$(TOUR) run $(ACTS)

.PHONY: test
test: ## Run all tests; without root, all but the scenarios on nodes (and say so).
	hack/test

.PHONY: quick
quick: ## Format, and run the unit tests of what changed since the last commit (SINCE=main); no cluster.
	hack/quick

.PHONY: verify
verify: ## Check what needs no cluster: lints, dependencies, spelling, manifests, PromQL, commands, page; PARTS="clippy links".
	hack/verify $(PARTS)

.PHONY: night
night: ## Run what takes hours, each part with its time, and go on after a failure; PARTS="faults simulate".
	hack/night $(PARTS)

.PHONY: check
check: verify test ## What must hold before a commit lands, as far as it needs no root.

.PHONY: build
build: protoc ## Build the operator.
	cargo build --bin traffic-operator

.PHONY: plugin
plugin: protoc ## Install the binary and its manual pages into PREFIX (~/.local), also as the kubectl plugin: kubectl traffic.
	cargo build --release --package traffic-operator --bin traffic-operator
	install -d "$(PREFIX)/bin"
	install -m 0755 target/release/traffic-operator "$(PREFIX)/bin/traffic-operator"
	ln -sfn traffic-operator "$(PREFIX)/bin/kubectl-traffic"
	ln -sfn traffic-operator "$(PREFIX)/bin/kubectl_complete-traffic"
	target/release/traffic-operator man --dir "$(PREFIX)/share/man/man1"
	ln -sfn traffic-operator.1 "$(PREFIX)/share/man/man1/kubectl-traffic.1"

.PHONY: run
run: protoc ## Run the operator against the cluster of the current kubeconfig.
	cargo run --bin traffic-operator -- run

.PHONY: bench
bench: image bench-peer ## Measure kinds, agents, streams, reflectors: memory, processor time, requests, writes, latency.
	for bench in operator prober reflecting; do $(RELEASED) $$bench $(BINARY); done
	$(RELEASED) agent $(AGENT)
	for bench in shares reflector; do $(RELEASED) $$bench; done

# A Go operator beside ours, scaffolded and tuned; BENCH_PEER= leaves it out, and names other programs otherwise.
.PHONY: bench-peer
bench-peer: image ## Measure the operator and a Go operator side by side, at 5,000 nodes, with a real Prometheus; BENCH_ROUNDS=5.
	peer="$$(hack/bench-peer)" && export BENCH_PEER="$$peer" && \
	BENCH_ROWS="$${BENCH_ROWS:-5000x1}" $(RELEASED) operator $(BINARY) && $(RELEASED) peer $(BINARY)

.PHONY: explore
explore: ## Search a million states of each small world of Swarms (the tests: 1,500).
	EXPLORE=1000000 $(OPTIMIZED) --lib -- --nocapture swarm::explorer::plots

.PHONY: prove-reflectors
prove-reflectors: protoc ## Play every fault of every layout of route reflectors, judged by the lab's model (the tests: a sample).
	$(OPTIMIZED) --lib route_reflector::proof::tests::every_layout -- --ignored --nocapture

.PHONY: soak-memory
soak-memory: image ## Judge 20,000 times, and fail above 1 kB of memory kept for each or above 0 descriptors; SOAK_EVALUATIONS=500.
	$(BENCH) soak $(BINARY)

.PHONY: soak-schema
soak-schema: protoc ## Walk through 200 generated specs of each kind on a real API server (the tests: 10); SCHEMA_SEED=7, SCHEMA_STEPS=50.
	SCHEMA_SEED="$(SCHEMA_SEED)" SCHEMA_STEPS="$(or $(SCHEMA_STEPS),200)" cargo test --test reconcile -- schema:: --nocapture --test-threads=1

.PHONY: mutants
mutants: protoc ## Break one expression after the other, and name those that no test sees; MODULES="limits gate". A night.
	hack/mutants $(MODULES)

.PHONY: simulate
simulate: protoc ## Play 10,000 seeds of the simulation, with an API server and a Prometheus in memory (the tests: 4); SEEDS=100, SEED=7 for one of them.
	SIMULATED_SEEDS=$(or $(SEEDS),10000) cargo test --profile campaign --lib simulation::tests::every -- --nocapture

.PHONY: clean
clean: lab-down ## Remove what was built (not the cache of the test ground: .lab/cache).
	cargo clean
	rm -rf .lab/image .lab/bench

##@ Code

.PHONY: fmt
fmt: ## Format the code.
	cargo fmt --all

.PHONY: lint
lint: protoc ## Lint: clippy pedantic, no warning allowed.
	cargo clippy --workspace --all-targets -- -D warnings

.PHONY: docs
docs: protoc ## Build the code's documentation, no warning allowed.
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

.PHONY: deny
deny: ## Check licenses, sources, banned crates and advisories of the dependencies.
	hack/deny

# What the builds of the client of etcd (cargo feature etcd, on by default) and of the metrics run.
.PHONY: protoc
protoc:
	@hack/protoc

.PHONY: generate manifests
generate: protoc ## Write what is generated: the dashboards, deploy/crds, deploy/rbac, docs/reference/fields, …
	@nice -n 10 lab/tools/build .lab/cache/bin jsonnet
	@# Not as jsonnet writes it by itself, which gives 0.05 seventeen digits.
	for board in grafana/*.jsonnet; do \
		.lab/cache/bin/jsonnet --string --exec "std.manifestJsonEx(import '$$board', '  ')" --output-file $${board%net} || exit 1; \
	done
	cargo run --quiet --bin traffic-operator -- manifests --output-dir deploy
manifests: generate ## The same as generate.

##@ Image

.PHONY: image
image: ## Build the image as an OCI archive, without Docker.
	hack/programs $(IMAGE_TARGET)
	cargo run --quiet --bin image -- --binary $(BINARY) --agent $(AGENT) --ref $(IMG) --out $(ARCHIVE)

.PHONY: docker-build
docker-build: ## Build the image with Docker.
	docker build --tag $(IMG) .

.PHONY: docker-push
docker-push: ## Push the image with Docker; needs IMG.
	@[ $(IMG_GIVEN) = yes ] || { echo "To where? make docker-push IMG=registry.example.com/traffic-operator:$(VERSION)" >&2; exit 1; }
	docker push $(IMG)

##@ Any cluster (of the current kubeconfig)

.PHONY: install
# With -j too: nothing is applied before the image is known to be there.
install: $(if $(filter deploy,$(MAKECMDGOALS)),image-there) ## Install the custom resource definitions.
	$(KUBECTL) apply -k deploy/crds
	@# kubectl wait has no -k, and takes the conditions of a definition that is a moment old, null, for an error.
	@tries=0; until $(KUBECTL) kustomize deploy/crds | $(KUBECTL) wait --for=condition=Established --timeout=30s -f -; do \
		tries=$$((tries + 1)); [ $$tries -lt 5 ] || exit 1; sleep 1; \
	done

.PHONY: uninstall
uninstall: ## Delete all custom resources, then their definitions; print what is left.
	KUBECTL=$(KUBECTL) hack/uninstall

.PHONY: image-there
image-there:
	@KUBECTL="$(KUBECTL)" IMG="$(IMG)" IMG_GIVEN=$(IMG_GIVEN) hack/image-there

RENDER = KUBECTL="$(KUBECTL)" IMG="$(IMG)" NAMESPACE="$(NAMESPACE)" hack/render

.PHONY: deploy
deploy: image-there install ## Deploy the operator (OVERLAY=kube-prometheus, kube-prometheus-stack or standalone; IMG=…, NAMESPACE=…).
	OVERLAY="$(OVERLAY)" $(RENDER) | $(KUBECTL) apply --server-side --force-conflicts -f -
	$(KUBECTL) -n $(NAMESPACE) rollout status deployment --selector=app.kubernetes.io/part-of=traffic-operator --timeout=120s

.PHONY: grafana
grafana: ## Show the dashboards in the Grafana of kube-prometheus, which has no sidecar.
	$(KUBECTL) kustomize grafana | $(KUBECTL) apply --server-side --force-conflicts -f -
	$(KUBECTL) -n monitoring patch deployment grafana --patch-file grafana/kube-prometheus.yaml
	$(KUBECTL) -n monitoring rollout status deployment grafana --timeout=120s

.PHONY: undeploy
undeploy: ## Delete all custom resources, then the operator; print what is left.
	KUBECTL="$(KUBECTL)" OVERLAY="$(OVERLAY)" NAMESPACE="$(NAMESPACE)" hack/undeploy

# Not committed: it names an image, which is known when one is released.
.PHONY: dist
dist: ## Write dist/install.yaml (definitions and operator; IMG=…), and one file for each overlay.
	mkdir -p dist
	for overlay in kube-prometheus kube-prometheus-stack standalone; do \
		CRDS=yes OVERLAY=$$overlay $(RENDER) > dist/install-$$overlay.yaml; \
	done
	CRDS=yes OVERLAY="$(OVERLAY)" $(RENDER) > dist/install.yaml

##@ Operator Lifecycle Manager (OLM)

OPERATOR_SDK ?= operator-sdk
# The image of the catalog that offers the bundle.
CATALOG_IMG ?=

.PHONY: olm-bundle
olm-bundle: ## Write the bundle to dist/olm, with the image IMG.
	KUBECTL="$(KUBECTL)" IMG="$(IMG)" hack/olm-bundle

.PHONY: olm-install
olm-install: ## Install OLM itself into the cluster of the current kubeconfig (needs operator-sdk).
	$(OPERATOR_SDK) olm install

.PHONY: olm-deploy
olm-deploy: ## Deploy the operator by OLM, from the catalog CATALOG_IMG.
	KUBECTL="$(KUBECTL)" CATALOG_IMG="$(CATALOG_IMG)" hack/olm-render | $(KUBECTL) apply --server-side --force-conflicts -f -

##@ Release

# Where the release is going to be comes from the environment: IMAGE, CHARTS, DOWNLOADS, HOMEPAGE (see hack/release).
RELEASING = VERSION="$(VERSION)" SKIP="$(SKIP)" hack/release

.PHONY: release
release: ## Build all files of a release into dist (VERSION=…), and check what must hold for one; push and sign nothing.
	RELEASE=yes $(RELEASING)

.PHONY: release-dry-run
release-dry-run: ## The same from any state of the tree, to see that it works; SKIP="reproducible sbom deny" leaves steps out.
	RELEASE= $(RELEASING)

.PHONY: upgrade-test
upgrade-test: ## Upgrade on real nodes from the revision FROM= to this one and back: PASS if no label changes and no pod restarts.
	hack/upgrade-test $(FROM)

.PHONY: reproducible
reproducible: ## Build the image twice in two folders and compare the digests; PASS or FAIL.
	hack/reproducible

##@ Test ground

.PHONY: lab-up
lab-up: image ## Start the demo's cluster with the operator deployed and nothing applied.
	$(LAB) up --capacity 1G

.PHONY: lab-down
lab-down: ## Remove the cluster of lab-up or `KEEP=1 make demo`.
	$(LAB) down
