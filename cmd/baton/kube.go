package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/lb/source/file"
	"github.com/baton-lb/baton/lb/source/kube"
	"github.com/baton-lb/baton/lb/store"
)

// Where kube-proxy answers, and so do we in its place.
const (
	defaultMetricsAddress = "127.0.0.1:10249"
	defaultHealthAddress  = "0.0.0.0:10256"
	proxyMode             = "baton"
)

// lateAfter is how long what has come may take until it is in force; kube-proxy's
// clients think it stuck then.
const lateAfter = time.Minute

// nodeNameVariable is how a DaemonSet says which node it is on.
const nodeNameVariable = "NODE_NAME"

// kubeOptions are the flags of `baton run` that are about Kubernetes.
type kubeOptions struct {
	api         bool
	kubeconfig  string
	objects     string // a file of objects or a directory of such files; "" = none
	node        string
	metrics     string
	health      string
	nodePorts   []string
	clusterCIDR string
	capture     string
	backends    bool // metrics of each
	mode        string

	set func(flag string) bool // whether a flag was given
}

func (k *kubeOptions) register(f *pflag.FlagSet) {
	f.BoolVar(&k.api, "kubernetes", false, "serve the Services of a cluster, in place of kube-proxy; --config then names a KubeProxyConfiguration, if anything")
	f.StringVar(&k.kubeconfig, "kubeconfig", "", "how to reach the API server (default: as a pod does)")
	f.StringVar(&k.objects, "kube-objects", "", "serve the Services of a file of objects (\"kubectl get svc,endpointslices -A -o yaml\"), or of a directory of such files")
	f.StringVar(&k.node, "node", "", "name of this node (default: $"+nodeNameVariable+"; with --kubernetes else the name of the host)")
	f.StringVar(&k.metrics, "metrics-bind-address", defaultMetricsAddress, "with Kubernetes: where metrics and health are; empty = nowhere")
	f.StringVar(&k.health, "healthz-bind-address", "", "with Kubernetes: where load balancers ask about the node; empty = nowhere (default: "+defaultHealthAddress+" with --kubernetes)")
	f.StringSliceVar(&k.nodePorts, "nodeport-addresses", nil, "with Kubernetes: CIDRs of this host's addresses that serve node ports, or primary, localhost, all (default: all)")
	f.StringVar(&k.clusterCIDR, "cluster-cidr", "", "with Kubernetes: CIDRs of all pods, one of each family (default: those of this node's pods are known)")
	f.StringVar(&k.capture, "capture", string(file.CaptureAuto), "with Kubernetes: how addresses come to this host: auto | sklookup | anyip | bind")
	f.BoolVar(&k.backends, "backend-metrics", false, "with Kubernetes: metrics of each backend, of which a cluster may have very many")
	f.StringVar(&k.mode, "mode", string(kube.ModeProxy), "with Kubernetes: how Services are carried that do not say it themselves: auto (steered where that can be) | steer | proxy")
	k.set = f.Changed
}

// on reports whether services come from Kubernetes.
func (k *kubeOptions) on() bool { return k.api || k.objects != "" }

// onlyKube are the flags that mean nothing without Kubernetes.
var onlyKube = []string{
	"kubeconfig", "node", "metrics-bind-address", "healthz-bind-address", "nodeport-addresses", "cluster-cidr", "capture", "backend-metrics", "mode",
}

func (k *kubeOptions) check(config string) error {
	switch {
	case k.api && k.objects != "":
		return errors.New("--kubernetes and --kube-objects are two sources: name one")
	case k.objects != "" && config != "":
		return errors.New("--kube-objects and --config are two sources: name one")
	case k.kubeconfig != "" && k.objects != "":
		return errors.New("--kubeconfig is for --kubernetes: --kube-objects asks no API server")
	case !k.on() && config == "":
		return errors.New("name the file to serve with --config, or --kubernetes, or --kube-objects")
	case !slices.Contains(kube.Modes, kube.Mode(k.mode)):
		return fmt.Errorf("--mode %q: use auto, steer or proxy", k.mode)
	case k.capture != "" && !slices.Contains(file.Captures, file.Capture(k.capture)):
		return fmt.Errorf("--capture %q: use auto, sklookup, anyip or bind", k.capture)
	}
	for _, flag := range onlyKube {
		if !k.on() && k.set(flag) {
			return fmt.Errorf("--%s is for --kubernetes and --kube-objects: the file of --config has keys for what it needs", flag)
		}
	}
	return nil
}

// kubeSettings are what a source of Kubernetes objects and its surroundings are set
// to: by flags, else by a KubeProxyConfiguration, else as kube-proxy is.
type kubeSettings struct {
	api     bool
	objects string
	client  kube.ClientConfig
	node    string

	bind         netip.Addr
	nodePorts    kube.NodePortAddresses
	clusterCIDRs []netip.Prefix
	mode         kube.Mode
	health       string
	closeWait    time.Duration // 0 = as it is
	oomScoreAdj  *int          // nil = as it is
}

// closeWaitTimeout is what kube-proxy gives conntrack.
const closeWaitTimeout = time.Hour

// settings reads everything, and what an instance is told otherwise by baton.yaml.
func (k *kubeOptions) settings(config string) (*kubeSettings, *file.Config, error) {
	proxy := &kube.ProxyConfig{}
	var err error
	if config != "" {
		if proxy, err = kube.LoadProxyConfig(config); err != nil {
			return nil, nil, err
		}
	}
	s := &kubeSettings{
		mode: kube.Mode(k.mode), api: k.api, objects: k.objects, client: proxy.Client, bind: proxy.BindAddress,
		nodePorts: proxy.NodePorts, clusterCIDRs: proxy.ClusterCIDRs, oomScoreAdj: proxy.OOMScoreAdj,
	}
	s.client.UserAgent = "baton/" + version()
	s.client.Kubeconfig = cmp.Or(k.kubeconfig, s.client.Kubeconfig)
	if s.node, err = k.nodeName(proxy.HostnameOverride); err != nil {
		return nil, nil, err
	}
	if k.api {
		s.closeWait = closeWaitTimeout
	}
	if proxy.CloseWaitTimeout != nil {
		s.closeWait = *proxy.CloseWaitTimeout
	}
	if k.set("nodeport-addresses") {
		if s.nodePorts, err = kube.ParseNodePortAddresses(k.nodePorts); err != nil {
			return nil, nil, fmt.Errorf("--nodeport-addresses: %w", err)
		}
	}
	if k.clusterCIDR != "" {
		if s.clusterCIDRs, err = kube.ParseClusterCIDRs(k.clusterCIDR); err != nil {
			return nil, nil, fmt.Errorf("--cluster-cidr: %w", err)
		}
	}
	c := file.Default()
	c.File, c.Capture = config, file.Capture(cmp.Or(k.capture, string(file.CaptureAuto)))
	v6 := s.bind.Is6()
	c.Admin.HTTP = k.address("metrics-bind-address", k.metrics, proxy.MetricsAddress, either(v6, "[::1]:10249", defaultMetricsAddress))
	s.health = k.address("healthz-bind-address", k.health, proxy.HealthAddress, either(v6, "[::]:10256", either(k.api, defaultHealthAddress, "")))
	return s, c, nil
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// address is what a flag says if it was given, else the configuration, else the
// default.
func (k *kubeOptions) address(flag, value, configured, otherwise string) string {
	if k.set(flag) {
		return value
	}
	return cmp.Or(configured, otherwise)
}

// nodeName is the name of this node. Nodes are called like their hosts, in lower
// case; where objects come from files the host need not be any of their nodes.
func (k *kubeOptions) nodeName(override string) (string, error) {
	name := cmp.Or(k.node, os.Getenv(nodeNameVariable), override)
	if name == "" && k.api {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("which node is this: %w; say so with --node", err)
		}
		name = host
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

// newKubeSource makes the source.
func (in *instance) newKubeSource() (*kube.Source, error) {
	s := in.kube
	o := kube.SourceOptions{
		Store: in.store, Log: in.log, Node: s.node, BindAddress: s.bind, NodePorts: s.nodePorts, ClusterCIDRs: s.clusterCIDRs, Mode: s.mode,
		ObserveProgramming: in.metrics.NetworkProgramming.Observe, Applied: in.o.notify.reloaded,
	}
	if s.api {
		return kube.NewAPI(o, s.client)
	}
	return kube.NewFiles(o, s.objects)
}

// openKube makes the source and what shows how it is.
func (in *instance) openKube() error {
	if in.kube == nil {
		return nil
	}
	if err := in.metrics.ForKubernetes(in.kubernetesState); err != nil {
		return err
	}
	src, err := in.newKubeSource()
	if err != nil {
		return err
	}
	in.objects, in.source = src, src
	in.store.OnProgrammed(func(r store.Round) { in.metrics.SyncRules.Observe(r.Duration) })
	for _, err := range in.kube.setHost() {
		in.log.Warn("a setting of the host stays as it is", "err", err)
	}
	return nil
}

// kubernetesState is what metrics show of the source.
func (in *instance) kubernetesState() admin.KubernetesState {
	st := in.objects.Status()
	return admin.KubernetesState{
		Stale: st.Stale, Objects: st.Objects, Faults: st.Faults, Queued: st.Queued, Synced: st.InForce,
		Services:  admin.KubernetesChanges{Total: st.Came.Services, Pending: st.Pending.Services},
		Endpoints: admin.KubernetesChanges{Total: st.Came.Slices, Pending: st.Pending.Slices},
	}
}

// nodeStatus is what load balancers are told of the node.
func (in *instance) nodeStatus() admin.NodeStatus {
	st := in.objects.Status()
	return admin.NodeStatus{
		Ready: in.lifecycle.Ready() == nil, Late: st.Waiting > lateAfter, Leaving: st.Leaving, LastUpdate: st.InForce, Stale: st.Stale,
	}
}

// forKubernetesClients is what is answered to those who ask as they ask kube-proxy.
func (in *instance) forKubernetesClients() (node admin.NodeOptions, mode string, err error) {
	if in.kube == nil {
		return node, "", nil
	}
	tcp, err := in.before.listener(otherSocket{otherNode, in.kube.health})
	return admin.NodeOptions{Address: in.kube.health, TCP: tcp, Status: in.nodeStatus}, proxyMode, err
}

// awaitObjects waits until the source has handed over everything that there is. An
// API server may be away for long, and somebody wants to know that we wait for it.
func (in *instance) awaitObjects(ctx context.Context) error {
	if in.objects == nil {
		return nil
	}
	if in.kube.api {
		in.o.release()
		in.log.Info("reading what the API server has")
	}
	select {
	case <-in.objects.Synced():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("read all objects: %w", ctx.Err())
	}
}
