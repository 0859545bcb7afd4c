package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// timeout bounds a query: a Prometheus that accepts and never answers must not hold a worker.
const timeout = 10 * time.Second

// Shares is the busiest link's percentage in use, by address of the node. Nobody changes one.
type Shares map[string]float64

// Prometheus asks for the load of all nodes.
type Prometheus struct {
	api promv1.API
	// Objects with the same query share an answer (tuned).
	share bool

	mutex   sync.Mutex
	answers map[string]*answer
}

// answer is the latest to a query. Callers that come while it is asked for wait for it.
type answer struct {
	mutex  sync.Mutex
	at     time.Time
	shares Shares
}

// NewPrometheus returns a client of the Prometheus at this URL.
func NewPrometheus(url string, share bool) (*Prometheus, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	return &Prometheus{api: promv1.NewAPI(client), share: share, answers: map[string]*answer{}}, nil
}

// promql asks for one number per node. Only links with a known speed count.
func promql(spec *TrafficWatchSpec) string {
	devices := fmt.Sprintf("job=\"node-exporter\",device=~%q", spec.Devices)
	return fmt.Sprintf(
		"max by (instance) (rate(node_network_transmit_bytes_total{%s}[%s]) / (node_network_speed_bytes{%s} > 0)) * 100",
		devices, spec.Window, devices,
	)
}

// Load returns the answer to a query, which may be as old as half an interval if it is shared.
func (p *Prometheus) Load(ctx context.Context, query string, interval time.Duration) (Shares, error) {
	if !p.share {
		return p.ask(ctx, query)
	}
	p.mutex.Lock()
	latest := p.answers[query]
	if latest == nil {
		latest = &answer{}
		p.answers[query] = latest
	}
	p.mutex.Unlock()

	latest.mutex.Lock()
	defer latest.mutex.Unlock()
	if time.Since(latest.at) < interval/2 {
		return latest.shares, nil
	}
	asked := time.Now()
	shares, err := p.ask(ctx, query)
	if err != nil {
		return nil, err
	}
	latest.at, latest.shares = asked, shares
	return shares, nil
}

func (p *Prometheus) ask(ctx context.Context, query string) (Shares, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	value, _, err := p.api.Query(ctx, query, time.Time{})
	if err != nil {
		return nil, err
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("a %s instead of a vector", value.Type())
	}
	shares := make(Shares, len(vector))
	for _, sample := range vector {
		share := float64(sample.Value)
		if math.IsNaN(share) || math.IsInf(share, 0) {
			continue
		}
		instance := string(sample.Metric[model.InstanceLabel])
		if host, _, err := net.SplitHostPort(instance); err == nil {
			instance = host
		}
		shares[instance] = share
	}
	return shares, nil
}
