// Program bundle-validate checks a bundle of the Operator Lifecycle Manager as `operator-sdk bundle validate` does, with
// the same library: the checks that are on by default, and those of the suite operatorframework that need no contact.
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const library = "github.com/operator-framework/api"

func main() {
	version := flag.Bool("version", false, "print the version of the library")
	flag.Parse()
	if *version {
		fmt.Println("bundle-validate " + libraryVersion())
		return
	}
	bundle, err := load(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	validators := interfaces.Validators{
		validation.ClusterServiceVersionValidator,
		validation.CustomResourceDefinitionValidator,
		validation.BundleValidator,
		validation.ObjectValidator,
		validation.StandardCapabilitiesValidator,
		validation.StandardCategoriesValidator,
		validation.AlphaDeprecatedAPIsValidator,
		validation.GoodPracticesValidator,
		validation.OperatorHubV2Validator,
	}
	failed := false
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, found := range result.Errors {
			fmt.Println("error: " + found.Error())
			failed = true
		}
		for _, found := range result.Warnings {
			fmt.Println("warning: " + found.Error())
		}
	}
	if failed {
		os.Exit(1)
	}
}

// Reads manifests/ and metadata/ of a bundle. The library's own loader reads each file twice with one decoder, which
// that of a newer Kubernetes does not allow.
func load(dir string) (*manifests.Bundle, error) {
	bundle := &manifests.Bundle{}
	paths, err := filepath.Glob(filepath.Join(dir, "manifests", "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(text, &object.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		bundle.Objects = append(bundle.Objects, object)
		switch object.GetKind() {
		case "ClusterServiceVersion":
			bundle.CSV = &v1alpha1.ClusterServiceVersion{}
			err = yaml.UnmarshalStrict(text, bundle.CSV)
			bundle.Name = bundle.CSV.GetName()
		case "CustomResourceDefinition":
			definition := &apiextensions.CustomResourceDefinition{}
			err = yaml.UnmarshalStrict(text, definition)
			bundle.V1CRDs = append(bundle.V1CRDs, definition)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var compressed bytes.Buffer
		writer := gzip.NewWriter(&compressed)
		if _, err := writer.Write(text); err != nil {
			return nil, err
		}
		if err := writer.Close(); err != nil {
			return nil, err
		}
		bundle.Size += int64(len(text))
		bundle.CompressedSize += int64(compressed.Len())
	}
	if bundle.CSV == nil {
		return nil, fmt.Errorf("%s holds no ClusterServiceVersion", dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "metadata", "annotations.yaml"))
	if err != nil {
		return nil, err
	}
	metadata := manifests.AnnotationsFile{}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return nil, err
	}
	bundle.Package = metadata.Annotations.PackageName
	bundle.Channels = strings.Split(metadata.Annotations.Channels, ",")
	bundle.DefaultChannel = metadata.Annotations.DefaultChannelName
	return bundle, nil
}

// The version that go.mod requires, as the linker has recorded it.
func libraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path == library {
			return module.Version
		}
	}
	return "unknown"
}
