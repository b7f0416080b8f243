package deploy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const daemonSetFile = "kubernetes/base/daemonset.yaml"

// podMonitor is as much of monitoring.coreos.com/v1 as we use.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Path        string `json:"path"`
			Relabelings []struct {
				SourceLabels []string `json:"sourceLabels"`
				Regex        string   `json:"regex"`
				TargetLabel  string   `json:"targetLabel"`
				Replacement  string   `json:"replacement"`
				Action       string   `json:"action"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// kustomization is as much of kustomize.config.k8s.io as we use.
type kustomization struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Labels    []struct {
		Pairs            map[string]string `json:"pairs"`
		IncludeTemplates bool              `json:"includeTemplates"`
	} `json:"labels"`
	Resources []string `json:"resources"`
	Patches   []struct {
		Path string `json:"path"`
	} `json:"patches"`
	ConfigMaps []struct {
		Name     string   `json:"name"`
		Behavior string   `json:"behavior"`
		Files    []string `json:"files"`
		Literals []string `json:"literals"`
	} `json:"configMapGenerator"`
	Images []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
}

// newObject makes an object of a kind that manifests may have.
func newObject(kind string) any {
	switch kind {
	case "v1 ServiceAccount":
		return new(corev1.ServiceAccount)
	case "v1 Pod":
		return new(corev1.Pod)
	case "apps/v1 DaemonSet":
		return new(appsv1.DaemonSet)
	case "rbac.authorization.k8s.io/v1 ClusterRole":
		return new(rbacv1.ClusterRole)
	case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
		return new(rbacv1.ClusterRoleBinding)
	case "monitoring.coreos.com/v1 PodMonitor":
		return new(podMonitor)
	}
	return nil
}

// objects reads a file of objects, strictly.
func objects(t *testing.T, path string) (all []any) {
	t.Helper()
	for _, doc := range strings.Split(read(t, path), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		o := newObject(kind.APIVersion + " " + kind.Kind)
		if o == nil {
			t.Fatalf("%s: no test knows %s %s", path, kind.APIVersion, kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		all = append(all, o)
	}
	return all
}

func parseObjects(t *testing.T, path string) {
	for _, o := range objects(t, path) {
		switch o := o.(type) {
		case *appsv1.DaemonSet:
			checkPod(t, &o.Spec.Template.Spec)
		case *corev1.Pod:
			checkPod(t, &o.Spec)
		}
	}
}

// checkPod holds the containers of a pod to the binary, and its mounts to its volumes.
func checkPod(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	var volumes []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, c := range pod.Containers {
		if len(c.Ports) > 0 {
			t.Errorf("container %s declares ports: two pods with the same are not let onto one node", c.Name)
		}
		for _, m := range c.VolumeMounts {
			if !slices.Contains(volumes, m.Name) {
				t.Errorf("container %s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
		lines := [][]string{append(slices.Clone(c.Command), c.Args...)}
		for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p != nil && p.Exec != nil {
				lines = append(lines, p.Exec.Command)
			}
		}
		for _, line := range lines {
			if len(line) > 1 && line[0] == binary {
				checkCommandLine(t, line[1:])
			}
		}
	}
}

func daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	return objects(t, daemonSetFile)[0].(*appsv1.DaemonSet)
}

// An update brings the next process beside the one that runs, and cuts no flow.
func TestDaemonSetUpdates(t *testing.T) {
	d := daemonSet(t)
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if u := d.Spec.UpdateStrategy.RollingUpdate; u.MaxSurge.IntValue() != 1 || u.MaxUnavailable.IntValue() != 0 {
		t.Errorf("it updates by %v", u)
	}
	if !slices.Contains(c.Args, "--upgrade") {
		t.Error("the next process does not take over")
	}
	if !pod.HostNetwork || pod.HostPID {
		t.Error("it has to be on the host's network, and process 1 in its container")
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe} {
		if !slices.Equal(p.Exec.Command, []string{binary, "ready", "--pid=1"}) {
			t.Errorf("the probe %v cannot tell the next process from the old one", p.Exec.Command)
		}
	}
	exit, await := durationArg(t, c.Args, "--exit-timeout"), durationArg(t, c.Args, "--await-successor")
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace <= exit+await {
		t.Errorf("it is killed after %v, and flows have %v after %v", grace, exit, await)
	}
}

// durationArg is what a flag says.
func durationArg(t *testing.T, args []string, flag string) time.Duration {
	t.Helper()
	for _, arg := range args {
		if v, ok := strings.CutPrefix(arg, flag+"="); ok {
			d, err := time.ParseDuration(v)
			if err != nil || d == 0 {
				t.Errorf("%s: %v", arg, err)
			}
			return d
		}
	}
	t.Errorf("it is run without %s", flag)
	return 0
}

// The pod that cleans up reaches what the daemon's leave.
func TestCleanupPodMatches(t *testing.T) {
	daemon := daemonSet(t).Spec.Template.Spec
	pod := objects(t, "kubernetes/replace-kube-proxy/cleanup-pod.yaml")[0].(*corev1.Pod).Spec
	for _, m := range pod.Containers[0].VolumeMounts {
		if !slices.ContainsFunc(daemon.Containers[0].VolumeMounts, func(d corev1.VolumeMount) bool { return d == m }) {
			t.Errorf("the daemon does not mount %v", m)
		}
	}
	for _, v := range pod.Volumes {
		if !slices.ContainsFunc(daemon.Volumes, func(d corev1.Volume) bool { return d.Name == v.Name && d.HostPath.Path == v.HostPath.Path }) {
			t.Errorf("the daemon has no volume %s at %s", v.Name, v.HostPath.Path)
		}
	}
}

func parseKustomization(t *testing.T, path string) {
	var k kustomization
	if err := yaml.UnmarshalStrict([]byte(read(t, path)), &k); err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, p := range k.Patches {
		named = append(named, p.Path)
	}
	for _, m := range k.ConfigMaps {
		named = append(named, m.Files...)
	}
	for _, name := range append(named, k.Resources...) {
		at := filepath.Join(filepath.Dir(path), name)
		if filepath.Ext(at) == "" {
			at = filepath.Join(at, "kustomization.yaml")
		}
		if !files(t)[at] {
			t.Errorf("there is no %s", at)
		}
	}
}

// A patch must meet what it patches.
func TestPatchesMeet(t *testing.T) {
	d := daemonSet(t)
	var k kustomization
	dir := "kubernetes/replace-kube-proxy"
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(dir, "kustomization.yaml"))), &k); err != nil {
		t.Fatal(err)
	}
	for _, p := range k.Patches {
		patch, ok := objects(t, filepath.Join(dir, p.Path))[0].(*appsv1.DaemonSet)
		if !ok || patch.Name != d.Name {
			t.Errorf("%s patches nothing", p.Path)
		}
	}
	var elsewhere appsv1.DaemonSet
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(dir, "kube-proxy-elsewhere.yaml"))), &elsewhere); err != nil {
		t.Fatal(err)
	}
	label := elsewhere.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Key
	here := objects(t, filepath.Join(dir, "on-labelled-nodes.yaml"))[0].(*appsv1.DaemonSet)
	if _, ok := here.Spec.Template.Spec.NodeSelector[label]; !ok {
		t.Errorf("kube-proxy leaves nodes labelled %s, and Baton comes to others", label)
	}
	// The keys that the overlay sets are those that the base reads.
	var read []string
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			read = append(read, e.ValueFrom.ConfigMapKeyRef.Key)
		}
	}
	for _, literal := range k.ConfigMaps[0].Literals {
		if key, _, _ := strings.Cut(literal, "="); !slices.Contains(read, key) {
			t.Errorf("nobody reads %s", key)
		}
	}
}
