package main

import (
	"context"
	"encoding/json"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// osLabel and linux select the nodes to judge, as the product's default does.
const (
	osLabel = "kubernetes.io/os"
	linux   = "linux"
)

// page is the number of nodes in one answer of the API server, as in kubectl.
const page = 500

// few nodes are read one by one.
const few = 50

// Node is what a judgment needs of one.
type Node struct {
	Name    string
	Address string
	Labels  map[string]string
	// The whole object, where there is one.
	object *corev1.Node
}

// Nodes reads nodes and labels them.
type Nodes interface {
	List(ctx context.Context) ([]Node, error)
	// SetLabel sets a label of a node; removes it without a value.
	SetLabel(ctx context.Context, node Node, key string, value *string) error
}

// wholeNodes are those of a scaffolded operator: the client's cache holds whole nodes, a list
// copies them, and a change is an update of the whole object.
type wholeNodes struct{ client.Client }

func (n wholeNodes) List(ctx context.Context) ([]Node, error) {
	var list corev1.NodeList
	if err := n.Client.List(ctx, &list, client.MatchingLabels{osLabel: linux}); err != nil {
		return nil, err
	}
	nodes := make([]Node, 0, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		nodes = append(nodes, Node{node.Name, address(node), node.Labels, node})
	}
	return nodes, nil
}

func (n wholeNodes) SetLabel(ctx context.Context, node Node, key string, value *string) error {
	if value == nil {
		delete(node.object.Labels, key)
	} else {
		if node.object.Labels == nil {
			node.object.Labels = map[string]string{}
		}
		node.object.Labels[key] = *value
	}
	return n.Update(ctx, node.object)
}

// slimNodes are the tuned ones: the cache holds only metadata, lists do not copy, and a change is
// a patch of one label. Addresses are not metadata: they are read once for each node.
type slimNodes struct {
	client.Client
	// Not cached.
	reader client.Reader

	mutex     sync.Mutex
	addresses map[string]string
}

func (n *slimNodes) List(ctx context.Context) ([]Node, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	err := n.Client.List(ctx, &list, client.MatchingLabels{osLabel: linux}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if err := n.learn(ctx, list.Items); err != nil {
		return nil, err
	}
	nodes := make([]Node, 0, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		nodes = append(nodes, Node{Name: node.Name, Address: n.addresses[node.Name], Labels: node.Labels})
	}
	return nodes, nil
}

// learn reads the addresses of nodes that have none yet, many of them by pages, and forgets those
// of nodes that are gone.
func (n *slimNodes) learn(ctx context.Context, items []metav1.PartialObjectMetadata) error {
	var missing []string
	there := make(map[string]struct{}, len(items))
	for i := range items {
		there[items[i].Name] = struct{}{}
		if n.addresses[items[i].Name] == "" {
			missing = append(missing, items[i].Name)
		}
	}
	for name := range n.addresses {
		if _, ok := there[name]; !ok {
			delete(n.addresses, name)
		}
	}
	if len(missing) <= few {
		for _, name := range missing {
			var node corev1.Node
			err := n.reader.Get(ctx, types.NamespacedName{Name: name}, &node)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			n.addresses[name] = address(&node)
		}
		return nil
	}
	next := ""
	for {
		var list corev1.NodeList
		if err := n.reader.List(ctx, &list, client.Limit(page), client.Continue(next)); err != nil {
			return err
		}
		for i := range list.Items {
			n.addresses[list.Items[i].Name] = address(&list.Items[i])
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

func (n *slimNodes) SetLabel(ctx context.Context, node Node, key string, value *string) error {
	labels := map[string]*string{key: value}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return n.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}

// address returns the address that the node's exporter is scraped at.
func address(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

// strip is the transform of the tuned cache: managed fields and annotations are most of metadata,
// and nothing here reads them.
func strip(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
		accessor.SetAnnotations(nil)
	}
	return object, nil
}
