package admin

import (
	"encoding/json"
	"net"
	"net/http"
	"time"
)

// NodeOptions is for those who ask whether this node takes traffic, as they ask
// kube-proxy: cloud load balancers, and the kubelet. The zero value is nobody.
type NodeOptions struct {
	Address string            // ADDRESS:PORT; "" = nowhere
	TCP     net.Listener      // is at Address already; nil = it is made
	Status  func() NodeStatus // how the node is now
}

// NodeStatus is how a node of a cluster is. The zero value is a node that has not
// begun.
type NodeStatus struct {
	Ready      bool          // everything has been in force once, and the process is not stopping
	Late       bool          // what has come is not in force, for longer than that may take
	Leaving    bool          // the node is to be deleted
	LastUpdate time.Time     // when everything that had come was in force last; zero = never
	Stale      time.Duration // how long the API server has not been heard of; 0 = it is
}

// nodeAnswer has the form of kube-proxy's, and says more only when there is more to
// be said.
type nodeAnswer struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible,omitempty"`
	APIServer    string    `json:"apiServer,omitempty"`
}

// nodeHealth answers about the node: /healthz whether load balancers should send
// clients here, /livez whether a restart would help.
func (s *Server) nodeHealth() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		st := s.o.Node.Status()
		eligible := !st.Leaving
		s.answerNode(w, st, st.Ready && eligible, &eligible)
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		s.answerNode(w, s.o.Node.Status(), true, nil)
	})
	return s.bounded(mux)
}

// answerNode says 200 when the node is fine otherwise too. An API server that is
// away makes no node unfit: what is known is served, here as on every other.
func (s *Server) answerNode(w http.ResponseWriter, st NodeStatus, fine bool, eligible *bool) {
	now := time.Now()
	fine = fine && !st.Late && s.o.Readiness.Live() == nil
	a := nodeAnswer{LastUpdated: st.LastUpdate, CurrentTime: now, NodeEligible: eligible, APIServer: st.apiServer()}
	if fine { // kube-proxy says so, since nothing is due
		a.LastUpdated = now
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !fine {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(a)
}

// staleAfter is how long a watch may be missing before it is worth a word: each ends
// now and then, and is made again at once.
const staleAfter = time.Second

// apiServer says what there is to say of the API server.
func (s NodeStatus) apiServer() string {
	if s.Stale < staleAfter {
		return ""
	}
	return "out of reach for " + s.Stale.Round(time.Second).String()
}
