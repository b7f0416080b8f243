package testkube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// paths are where objects of a manifest are made.
var paths = map[string]string{
	"ServiceAccount":     "/api/v1/namespaces/kube-system/serviceaccounts",
	"Pod":                "/api/v1/namespaces/kube-system/pods",
	"DaemonSet":          "/apis/apps/v1/namespaces/kube-system/daemonsets",
	"ClusterRole":        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}

// Accepts asks the API server whether it would take every object of a file of manifests,
// without a warning. Before that the text is changed, and a DaemonSet patched with files
// as kustomize does.
func (c *Cluster) Accepts(file string, changes *strings.Replacer, patches ...string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for doc := range strings.SplitSeq(changes.Replace(string(text)), "\n---\n") {
		object, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		var kind metav1.TypeMeta
		if err := json.Unmarshal(object, &kind); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if kind.Kind == "DaemonSet" {
			if object, err = patched(object, patches); err != nil {
				return err
			}
		}
		if err := c.dryRun(kind.Kind, object); err != nil {
			return fmt.Errorf("%s of %s: %w", kind.Kind, file, err)
		}
	}
	return nil
}

func patched(daemonSet []byte, patches []string) ([]byte, error) {
	for _, file := range patches {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		patch, err := yaml.YAMLToJSON(text)
		if err == nil {
			daemonSet, err = strategicpatch.StrategicMergePatch(daemonSet, patch, appsv1.DaemonSet{})
		}
		if err != nil {
			return nil, fmt.Errorf("patch with %s: %w", file, err)
		}
	}
	return daemonSet, nil
}

func (c *Cluster) dryRun(kind string, object []byte) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), startTimeout)
	defer cancel()
	var warned warnings
	err := c.Client.CoreV1().RESTClient().Post().AbsPath(paths[kind]).WarningHandler(&warned).
		Param("dryRun", "All").Param("fieldValidation", "Strict").
		SetHeader("Content-Type", "application/json").Body(object).Do(ctx).Error()
	if err == nil && len(warned) > 0 {
		err = fmt.Errorf("the API server warns: %s", strings.Join(warned, "; "))
	}
	return err
}

// warnings collects what the API server warns of.
type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }
