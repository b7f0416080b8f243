package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	switch args := os.Args[1:]; {
	case len(args) > 0 && args[0] == "apiserver":
		command := apiserver.NewAPIServerCommand()
		command.SetArgs(args[1:])
		os.Exit(cli.Run(command))
	case len(args) == 2 && args[0] == "endpointslices":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := makeSlices(ctx, args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "control:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: control apiserver FLAG... | endpointslices KUBECONFIG")
		os.Exit(2)
	}
}
