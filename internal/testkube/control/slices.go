package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
)

// As kube-controller-manager has them.
const (
	endpointsPerSlice = 100
	workers           = 5
)

// makeSlices keeps EndpointSlices as Services and pods say, until ctx ends.
func makeSlices(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	all := informers.NewSharedInformerFactory(client, 0)
	c := endpointslice.NewController(ctx, all.Core().V1().Pods(), all.Core().V1().Services(), all.Core().V1().Nodes(),
		all.Discovery().V1().EndpointSlices(), endpointsPerSlice, client, 0)
	all.Start(ctx.Done())
	c.Run(ctx, workers)
	return nil
}
