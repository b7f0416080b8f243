package testkube

import (
	"context"
	"fmt"
	"os"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Grant gives the service account kube-system/baton what the ClusterRole in a file of
// manifests allows, and returns that.
func (c *Cluster) Grant(file string) (granted []Request) {
	c.t.Helper()
	c.do("grant what "+file+" says", func(ctx context.Context) error {
		role, err := clusterRole(file)
		if err != nil {
			return err
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "baton"}},
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted = append(granted, Request{Verb: verb, Group: group, Resource: resource})
					}
				}
			}
		}
		if _, err := c.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err = c.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		return err
	})
	return granted
}

// clusterRole reads the one that a file of manifests has.
func clusterRole(file string) (*rbacv1.ClusterRole, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		role := new(rbacv1.ClusterRole)
		if err := yaml.Unmarshal([]byte(doc), role); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if role.Kind == "ClusterRole" {
			return role, nil
		}
	}
	return nil, fmt.Errorf("read %s: no ClusterRole is in it", file)
}
