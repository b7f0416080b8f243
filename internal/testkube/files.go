package testkube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Names of files in the cluster's directory.
const (
	tokensFile      = "tokens.csv"
	keyFile         = "service-accounts.key"
	auditPolicyFile = "audit.yaml"
	auditFile       = "audit.log"
)

// User is who asks the API server.
type User struct {
	name   string
	groups []string
}

// admin may do everything.
var admin = User{name: "admin", groups: []string{"system:masters"}}

// ServiceAccount is a service account as a user. It may do what roles that are bound to
// it allow.
func ServiceAccount(namespace, name string) User {
	return User{
		name:   "system:serviceaccount:" + namespace + ":" + name,
		groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
}

// baton is the service account that the tokens are made for beforehand: the API server
// reads their file once.
var baton = ServiceAccount("kube-system", "baton")

func (u User) token() string { return strings.ReplaceAll(u.name, ":", "-") }

// writeFiles writes what the API server reads when it starts.
func (c *Cluster) writeFiles() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	var tokens strings.Builder
	for _, u := range []User{admin, baton} {
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", u.token(), u.name, u.name, strings.Join(u.groups, ","))
	}
	for name, content := range map[string]string{
		keyFile:         string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})),
		tokensFile:      tokens.String(),
		auditPolicyFile: fmt.Sprintf(auditPolicy, baton.name),
	} {
		if err := os.WriteFile(c.path(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Kubeconfig writes a file with which a process on another host reaches the API server.
func (c *Cluster) Kubeconfig(u User) string {
	c.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{
		Server: "https://" + c.server().String(), CertificateAuthority: c.path("apiserver.crt"),
	}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: u.token()}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "user"}
	config.CurrentContext = "test"
	file := c.path(u.token() + ".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		c.t.Fatalf("write a kubeconfig: %v", err)
	}
	return file
}
