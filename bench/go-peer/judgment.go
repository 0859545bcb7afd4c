package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// settings are a spec in the form that a judgment needs.
type settings struct {
	query       string
	interval    time.Duration
	max         float64
	recover     float64
	consecutive Consecutive
	label       string
	enforce     bool
}

func parse(watch *TrafficWatch) (*settings, error) {
	spec := &watch.Spec
	interval, err := time.ParseDuration(spec.Interval)
	if err != nil || interval <= 0 {
		return nil, fmt.Errorf("spec.interval: %q is not a duration", spec.Interval)
	}
	max, err := strconv.ParseFloat(strings.TrimSuffix(spec.MaxBandwidthPercent, "%"), 64)
	if err != nil {
		return nil, fmt.Errorf("spec.maxBandwidthPercent: %q is not a number", spec.MaxBandwidthPercent)
	}
	label := spec.Label
	if label == "" {
		label = watch.Name
	}
	return &settings{
		query:       promql(spec),
		interval:    interval,
		max:         max,
		recover:     max * spec.RecoverPercent / 100,
		consecutive: spec.Consecutive,
		label:       label + ".traffic.example.com/unfit",
		enforce:     spec.Mode != "Observe",
	}, nil
}

// judgment is what is remembered of a node between two passes.
type judgment struct {
	known bool
	unfit bool
	// The other state, and the number of judgments in a row that found it.
	candidate bool
	streak    int
}

// adopt takes a label of a former process for the state of a node that was never judged here.
func (j *judgment) adopt(value string) {
	if !j.known && j.streak == 0 && value != "" {
		j.known, j.unfit = true, value == "true"
	}
}

// observe judges a node by the share of its link that is in use.
func (j *judgment) observe(share float64, s *settings) {
	limit, need := s.max, s.consecutive.Unfit
	if j.known && j.unfit {
		limit = s.recover
	}
	unfit := share > limit
	if !unfit {
		need = s.consecutive.Fit
	}
	if j.known && unfit == j.unfit {
		j.streak = 0
		return
	}
	if unfit != j.candidate {
		j.candidate, j.streak = unfit, 0
	}
	j.streak++
	if j.streak >= need {
		j.known, j.unfit, j.streak = true, unfit, 0
	}
}
