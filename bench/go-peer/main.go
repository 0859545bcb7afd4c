// go-peer does the main job of TrafficWatch as an operator in Go does it: it reads the objects,
// asks Prometheus at each interval, labels nodes and writes the status. It exists to be measured
// beside the product (docs/benchmarks.md), and accepts the arguments that the benches pass.
//
// As it is, it is built the way operator-sdk scaffolds an operator on controller-runtime. With
// -tuned before the command it keeps only the metadata of nodes, patches instead of updating,
// writes to several nodes at once, and shares one query among all objects.
package main

import (
	"flag"
	"fmt"
	"os"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// namespace is that of the product, which the Lease is in.
const namespace = "traffic-operator-system"

// userAgent names this program in the audit log of the API server.
const userAgent = "traffic-operator-go-peer"

// arguments are those of `run` that have a meaning here. Others of the product that the benches
// pass are accepted and ignored: there is no webhook and no pinglist.
type arguments struct {
	log        string
	lease      string
	prometheus string
	admin      string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	tuned := flag.Bool("tuned", false, "tune it as a good Go engineer would")
	flag.Parse()
	if flag.Arg(0) != "run" {
		return fmt.Errorf("usage: %s [-tuned] run [flags]", os.Args[0])
	}
	var args arguments
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&args.log, "log", "info", "level of the log")
	flags.StringVar(&args.lease, "lease-name", "traffic-operator", "name of the Lease")
	flags.StringVar(&args.prometheus, "prometheus-url", "http://127.0.0.1:9090", "Prometheus")
	flags.StringVar(&args.admin, "admin-address", ":8080", "address of /metrics")
	for _, ignored := range []string{"webhook-address", "pinglist-address"} {
		flags.String(ignored, "", "ignored")
	}
	if err := flags.Parse(flag.Args()[1:]); err != nil {
		return err
	}
	level, err := zapcore.ParseLevel(args.log)
	if err != nil {
		return err
	}
	ctrl.SetLogger(zap.New(zap.Level(level)))
	manager, err := newManager(&args, *tuned)
	if err != nil {
		return err
	}
	prometheus, err := NewPrometheus(args.prometheus, *tuned)
	if err != nil {
		return err
	}
	reconciler := &Reconciler{Client: manager.GetClient(), Prometheus: prometheus, Tuned: *tuned}
	if *tuned {
		reconciler.Nodes = &slimNodes{
			Client:    manager.GetClient(),
			reader:    manager.GetAPIReader(),
			addresses: map[string]string{},
		}
	} else {
		reconciler.Nodes = wholeNodes{manager.GetClient()}
	}
	if err := reconciler.SetupWithManager(manager); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func newManager(args *arguments, tuned bool) (ctrl.Manager, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := addToScheme(scheme); err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Scheme: scheme,
		// In plain HTTP, as the benches scrape the product.
		Metrics:                       metricsserver.Options{BindAddress: args.admin},
		HealthProbeBindAddress:        "0",
		LeaderElection:                true,
		LeaderElectionID:              args.lease,
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
	}
	if tuned {
		// controller-runtime's own default by now; said here because it once was 20.
		config.QPS = -1
		options.Cache.DefaultTransform = strip
	}
	return ctrl.NewManager(config, options)
}
