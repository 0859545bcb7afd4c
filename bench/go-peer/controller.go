package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// finalizer lets the labels of a deleted object be removed.
const finalizer = "traffic.example.com/go-peer"

// atOnce is the number of concurrent writes to nodes of the tuned form: that of the product.
const atOnce = 8

// Reconciler judges nodes for each TrafficWatch.
type Reconciler struct {
	client.Client
	Prometheus *Prometheus
	Nodes      Nodes
	Tuned      bool

	mutex  sync.Mutex
	memory map[types.NamespacedName]map[string]*judgment
}

// SetupWithManager registers it. Its own writes to a status do not start a pass.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	r.memory = map[types.NamespacedName]map[string]*judgment{}
	options := controller.Options{}
	if r.Tuned {
		options.MaxConcurrentReconciles = 4
	}
	return ctrl.NewControllerManagedBy(manager).
		For(&TrafficWatch{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options).
		Complete(r)
}

// Reconcile is one pass over one object.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var watch TrafficWatch
	if err := r.Get(ctx, request.NamespacedName, &watch); err != nil {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !watch.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.cleanUp(ctx, &watch)
	}
	before := watch.DeepCopyObject().(*TrafficWatch)
	if controllerutil.AddFinalizer(&watch, finalizer) {
		if err := r.Patch(ctx, &watch, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
		before = watch.DeepCopyObject().(*TrafficWatch)
	}

	settings, err := parse(&watch)
	if err != nil {
		// Only a change of the spec helps, and starts a pass.
		ready(&watch, metav1.ConditionFalse, "Invalid", err.Error())
		return ctrl.Result{}, r.report(ctx, before, &watch)
	}
	watch.Status.Label = settings.label
	watch.Status.ObservedGeneration = watch.Generation
	shares, err := r.Prometheus.Load(ctx, settings.query, settings.interval)
	if err != nil {
		log.FromContext(ctx).Error(err, "asking Prometheus")
		ready(&watch, metav1.ConditionFalse, "PrometheusUnavailable", "Prometheus does not answer.")
		return r.finish(ctx, settings, before, &watch)
	}
	nodes, err := r.Nodes.List(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}

	summary, changes := r.judge(request.NamespacedName, settings, nodes, shares)
	if settings.enforce {
		if err := r.write(ctx, changes, settings.label); err != nil {
			return ctrl.Result{}, err
		}
	}
	watch.Status.Summary = &summary
	watch.Status.Ready = summary.Fit+summary.Unfit > 0
	ready(&watch, metav1.ConditionTrue, "Judged", "The nodes are judged.")
	return r.finish(ctx, settings, before, &watch)
}

// finish writes the status and asks for the next pass. An error excludes a time for the next one:
// controller-runtime would ignore it.
func (r *Reconciler) finish(
	ctx context.Context, settings *settings, before, watch *TrafficWatch,
) (ctrl.Result, error) {
	if err := r.report(ctx, before, watch); err != nil {
		return ctrl.Result{}, err
	}
	return r.next(settings), nil
}

// change is a label to write.
type change struct {
	node  Node
	value *string
}

// judge compares all nodes with the thresholds. A node without a number stays as it is.
func (r *Reconciler) judge(
	name types.NamespacedName, settings *settings, nodes []Node, shares Shares,
) (Summary, []change) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	memory := r.memory[name]
	fresh := make(map[string]*judgment, len(nodes))
	summary := Summary{Nodes: int32(len(nodes))}
	var changes []change
	for _, node := range nodes {
		state := memory[node.Name]
		if state == nil {
			state = &judgment{}
		}
		fresh[node.Name] = state
		state.adopt(node.Labels[settings.label])
		if share, ok := shares[node.Address]; ok {
			state.observe(share, settings)
		}
		switch {
		case !state.known:
			summary.Unknown++
			continue
		case state.unfit:
			summary.Unfit++
		default:
			summary.Fit++
		}
		if value := strconv.FormatBool(state.unfit); node.Labels[settings.label] != value {
			changes = append(changes, change{node, &value})
		}
	}
	r.memory[name] = fresh
	return summary, changes
}

// write sets labels: one after the other, or, tuned, several at once. The next pass repeats what a
// conflict prevents.
func (r *Reconciler) write(ctx context.Context, changes []change, label string) error {
	group := errgroup.Group{}
	group.SetLimit(1)
	if r.Tuned {
		group.SetLimit(atOnce)
	}
	var mutex sync.Mutex
	var failed []error
	for _, change := range changes {
		group.Go(func() error {
			err := client.IgnoreNotFound(r.Nodes.SetLabel(ctx, change.node, label, change.value))
			if err != nil && !apierrors.IsConflict(err) {
				mutex.Lock()
				failed = append(failed, err)
				mutex.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(failed...)
}

// report writes the status if it changed.
func (r *Reconciler) report(ctx context.Context, before, watch *TrafficWatch) error {
	if equality.Semantic.DeepEqual(before.Status, watch.Status) {
		return nil
	}
	if r.Tuned {
		return r.Status().Patch(ctx, watch, client.MergeFrom(before))
	}
	return r.Status().Update(ctx, watch)
}

// next is the time of the next pass. Tuned, all objects with one interval have theirs at the same
// time, so that they share an answer.
func (r *Reconciler) next(settings *settings) ctrl.Result {
	if !r.Tuned {
		return ctrl.Result{RequeueAfter: settings.interval}
	}
	now := time.Now()
	return ctrl.Result{RequeueAfter: now.Truncate(settings.interval).Add(settings.interval).Sub(now)}
}

// cleanUp removes the labels of a deleted object.
func (r *Reconciler) cleanUp(ctx context.Context, watch *TrafficWatch) error {
	r.forget(client.ObjectKeyFromObject(watch))
	if !controllerutil.ContainsFinalizer(watch, finalizer) {
		return nil
	}
	nodes, err := r.Nodes.List(ctx)
	if err != nil {
		return err
	}
	if settings, err := parse(watch); err == nil {
		var changes []change
		for _, node := range nodes {
			if _, ok := node.Labels[settings.label]; ok {
				changes = append(changes, change{node: node})
			}
		}
		if err := r.write(ctx, changes, settings.label); err != nil {
			return err
		}
	}
	before := watch.DeepCopyObject().(*TrafficWatch)
	controllerutil.RemoveFinalizer(watch, finalizer)
	return client.IgnoreNotFound(r.Patch(ctx, watch, client.MergeFrom(before)))
}

func (r *Reconciler) forget(name types.NamespacedName) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.memory, name)
}

func ready(watch *TrafficWatch, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&watch.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: status, Reason: reason, Message: message,
		ObservedGeneration: watch.Generation,
	})
}
