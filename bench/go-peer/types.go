package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// groupVersion is that of the product's TrafficWatch: both programs read the same objects.
var groupVersion = schema.GroupVersion{Group: "traffic.example.com", Version: "v1alpha1"}

// TrafficWatch has the fields that this program acts on. It never updates a whole object, because
// that would drop the others.
type TrafficWatch struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TrafficWatchSpec   `json:"spec,omitempty"`
	Status TrafficWatchStatus `json:"status,omitempty"`
}

// TrafficWatchSpec is the request. The API server fills in the defaults.
type TrafficWatchSpec struct {
	MaxBandwidthPercent string      `json:"maxBandwidthPercent,omitempty"`
	RecoverPercent      float64     `json:"recoverPercent,omitempty"`
	Interval            string      `json:"interval,omitempty"`
	Window              string      `json:"window,omitempty"`
	Devices             string      `json:"devices,omitempty"`
	Label               string      `json:"label,omitempty"`
	Mode                string      `json:"mode,omitempty"`
	Consecutive         Consecutive `json:"consecutive,omitempty"`
}

// Consecutive is the number of judgments in a row that change a label.
type Consecutive struct {
	Unfit int `json:"unfit,omitempty"`
	Fit   int `json:"fit,omitempty"`
}

// TrafficWatchStatus is the result.
type TrafficWatchStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Ready              bool               `json:"ready"`
	Label              string             `json:"label,omitempty"`
	Summary            *Summary           `json:"summary,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Summary counts the nodes in each state. This program suppresses none.
type Summary struct {
	Nodes      int32 `json:"nodes"`
	Fit        int32 `json:"fit"`
	Unfit      int32 `json:"unfit"`
	Unknown    int32 `json:"unknown"`
	Suppressed int32 `json:"suppressed"`
}

// TrafficWatchList is a list of them.
type TrafficWatchList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TrafficWatch `json:"items"`
}

// DeepCopyInto is what controller-gen writes.
func (in *TrafficWatch) DeepCopyInto(out *TrafficWatch) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Status.DeepCopyInto(&out.Status)
}

// DeepCopyObject implements runtime.Object.
func (in *TrafficWatch) DeepCopyObject() runtime.Object {
	out := &TrafficWatch{}
	in.DeepCopyInto(out)
	return out
}

// DeepCopyInto is what controller-gen writes.
func (in *TrafficWatchStatus) DeepCopyInto(out *TrafficWatchStatus) {
	*out = *in
	if in.Summary != nil {
		summary := *in.Summary
		out.Summary = &summary
	}
	if in.Conditions != nil {
		out.Conditions = make([]metav1.Condition, len(in.Conditions))
		for i := range in.Conditions {
			in.Conditions[i].DeepCopyInto(&out.Conditions[i])
		}
	}
}

// DeepCopyObject implements runtime.Object.
func (in *TrafficWatchList) DeepCopyObject() runtime.Object {
	out := &TrafficWatchList{TypeMeta: in.TypeMeta}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]TrafficWatch, len(in.Items))
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}

// addToScheme makes the kind known.
func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &TrafficWatch{}, &TrafficWatchList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}
