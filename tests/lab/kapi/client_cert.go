package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// clientCert writes DIR/NAME.crt and DIR/NAME.key, signed by DIR/client-ca.crt, which it makes if it is not there.
func clientCert(args []string) {
	fs := flag.NewFlagSet("client-cert", flag.ExitOnError)
	dir := fs.String("dir", ".", "")
	name := fs.String("name", "kube-proxy", "common name, which is the user's name, and name of the files")
	group := fs.String("group", "system:masters", "organization, which is the user's group")
	validFor := fs.Duration("valid-for", 24*time.Hour, "from a minute ago; negative makes an expired one")
	fs.Parse(args)
	caCert, caKey := clientCA(*dir)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	now := time.Now()
	notBefore := now.Add(-time.Minute)
	if *validFor < 0 {
		notBefore = now.Add(2 * *validFor)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: *name, Organization: []string{*group}},
		NotBefore: notBefore, NotAfter: now.Add(*validFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, caCert, key.Public(), caKey)
	check(err)
	base := filepath.Join(*dir, *name)
	writePEM(base+".crt", "CERTIFICATE", der, 0o644)
	writeKey(base+".key", key)
	fmt.Println(base + ".crt")
}

func clientCA(dir string) (*x509.Certificate, *ecdsa.PrivateKey) {
	base := filepath.Join(dir, "client-ca")
	if _, err := os.Stat(base + ".crt"); err != nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		check(err)
		now := time.Now()
		template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "kapi client CA"},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(240 * time.Hour), IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		check(err)
		writeKey(base+".key", key)
		writePEM(base+".crt", "CERTIFICATE", der, 0o644)
	}
	cert, err := x509.ParseCertificate(readPEM(base + ".crt"))
	check(err)
	key, err := x509.ParseECPrivateKey(readPEM(base + ".key"))
	check(err)
	return cert, key
}

func writeKey(path string, key *ecdsa.PrivateKey) {
	der, err := x509.MarshalECPrivateKey(key)
	check(err)
	writePEM(path, "EC PRIVATE KEY", der, 0o600)
}

// writePEM replaces the file in one step, as it may be in use.
func writePEM(path, kind string, der []byte, mode os.FileMode) {
	check(os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode))
	check(os.Rename(path+".new", path))
}

func readPEM(path string) []byte {
	text, err := os.ReadFile(path)
	check(err)
	block, _ := pem.Decode(text)
	if block == nil {
		check(fmt.Errorf("%s holds no PEM", path))
	}
	return block.Bytes
}
