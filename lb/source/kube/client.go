package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ClientConfig says how the API server is reached. The zero value is: as a pod
// does.
type ClientConfig struct {
	Kubeconfig         string // a file; "" = as a pod does
	ContentType        string // "" = protobuf
	AcceptContentTypes string // "" = protobuf, else JSON
	QPS                float32
	Burst              int
	UserAgent          string
}

const protobuf = "application/vnd.kubernetes.protobuf"

// rest is the client library's form of it.
func (c ClientConfig) rest() (r *rest.Config, err error) {
	if c.Kubeconfig == "" {
		r, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("reach the API server: this is no pod of a cluster; name a file with --kubeconfig")
		}
	} else {
		r, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	r.ContentType, r.AcceptContentTypes = protobuf, protobuf+",application/json"
	if c.ContentType != "" {
		r.ContentType = c.ContentType
	}
	if c.AcceptContentTypes != "" {
		r.AcceptContentTypes = c.AcceptContentTypes
	}
	r.QPS, r.Burst, r.UserAgent = c.QPS, c.Burst, c.UserAgent
	return r, nil
}

// client makes a client, and says where its server is: HOST or HOST:PORT, perhaps
// within a URL.
func (c ClientConfig) client() (kubernetes.Interface, string, error) {
	r, err := c.rest()
	if err != nil {
		return nil, "", err
	}
	k, err := kubernetes.NewForConfig(r)
	if err != nil {
		return nil, "", fmt.Errorf("reach the API server: %w", err)
	}
	return k, r.Host, nil
}
