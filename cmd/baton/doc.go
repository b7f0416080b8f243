// Command baton is the balancer and the tool that talks to a running one. It is
// wiring only: it alone knows which package implements what another declares.
package main
