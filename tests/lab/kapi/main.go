// kapi is a small Kubernetes API server for tests: k8s.io/apiserver's
// generic server, registry store, watch cache and etcd3 storage, with TLS and a
// bearer token, serving the few built-in resources a service proxy talks to, and
// those that it is made of in a cluster.
// There are no controllers and no admission, nothing is validated beyond object
// metadata, and authorization only refuses what -forbid names. Internal types
// are the versioned Go types.
//
//	kapi serve | fill | touch | compact | client-cert   (-h for flags)
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/ptr"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kapi:", err)
		os.Exit(1)
	}
}

// ---- scheme: every type is both the versioned and the internal one ----

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	gvs    = schema.GroupVersions{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion,
		eventsv1.SchemeGroupVersion, coordv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion,
		appsv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion}
)

func init() {
	add := func(gv schema.GroupVersion, versions []string, types ...runtime.Object) {
		for _, v := range versions {
			scheme.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: v}, types...)
		}
	}
	both, internal := []string{"v1", runtime.APIVersionInternal}, []string{runtime.APIVersionInternal}
	add(gvs[0], both, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{},
		&corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Event{}, &corev1.EventList{},
		&corev1.Endpoints{}, &corev1.EndpointsList{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{},
		&corev1.Secret{}, &corev1.SecretList{}, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{})
	add(gvs[1], both, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	// Both event APIs are views of one object, as in Kubernetes: core's is the stored form.
	add(gvs[2], []string{"v1"}, &eventsv1.Event{}, &eventsv1.EventList{})
	add(gvs[2], internal, &corev1.Event{}, &corev1.EventList{})
	add(gvs[3], both, &coordv1.Lease{}, &coordv1.LeaseList{})
	add(gvs[4], both, &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{})
	add(gvs[5], both, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{})
	add(gvs[6], both, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{})
	for _, gv := range gvs {
		metav1.AddToGroupVersion(scheme, gv)
		check(scheme.SetVersionPriority(gv))
	}
	check(scheme.AddConversionFunc((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(a, b any, _ conversion.Scope) error {
		toEventsV1(a.(*corev1.Event), b.(*eventsv1.Event))
		return nil
	}))
	check(scheme.AddConversionFunc((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(a, b any, _ conversion.Scope) error {
		toCoreV1(a.(*eventsv1.Event), b.(*corev1.Event))
		return nil
	}))
	check(scheme.AddConversionFunc((*corev1.EventList)(nil), (*eventsv1.EventList)(nil), func(a, b any, _ conversion.Scope) error {
		in, out := a.(*corev1.EventList), b.(*eventsv1.EventList)
		out.ListMeta, out.Items = in.ListMeta, make([]eventsv1.Event, len(in.Items))
		for i := range in.Items {
			toEventsV1(&in.Items[i], &out.Items[i])
		}
		return nil
	}))
	check(scheme.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Event"), anyLabel))
	check(scheme.AddFieldLabelConversionFunc(eventsv1.SchemeGroupVersion.WithKind("Event"), anyLabel))
	scheme.AddTypeDefaultingFunc(&corev1.Service{}, func(o any) { defaultService(&o.(*corev1.Service).Spec) })
	scheme.AddTypeDefaultingFunc(&discoveryv1.EndpointSlice{}, func(o any) {
		for i := range o.(*discoveryv1.EndpointSlice).Ports {
			p := &o.(*discoveryv1.EndpointSlice).Ports[i]
			p.Name, p.Protocol = ptr.To(ptr.Deref(p.Name, "")), ptr.To(ptr.Deref(p.Protocol, corev1.ProtocolTCP))
		}
	})
}

func anyLabel(label, value string) (string, string, error) {
	return strings.NewReplacer("regarding.", "involvedObject.").Replace(label), value, nil
}

func toEventsV1(in *corev1.Event, out *eventsv1.Event) {
	*out = eventsv1.Event{ObjectMeta: in.ObjectMeta, EventTime: in.EventTime, ReportingController: in.ReportingController,
		ReportingInstance: in.ReportingInstance, Action: in.Action, Reason: in.Reason, Regarding: in.InvolvedObject,
		Related: in.Related, Note: in.Message, Type: in.Type, DeprecatedSource: in.Source,
		DeprecatedFirstTimestamp: in.FirstTimestamp, DeprecatedLastTimestamp: in.LastTimestamp, DeprecatedCount: in.Count}
	if s := in.Series; s != nil {
		out.Series = &eventsv1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
}

func toCoreV1(in *eventsv1.Event, out *corev1.Event) {
	*out = corev1.Event{ObjectMeta: in.ObjectMeta, EventTime: in.EventTime, ReportingController: in.ReportingController,
		ReportingInstance: in.ReportingInstance, Action: in.Action, Reason: in.Reason, InvolvedObject: in.Regarding,
		Related: in.Related, Message: in.Note, Type: in.Type, Source: in.DeprecatedSource,
		FirstTimestamp: in.DeprecatedFirstTimestamp, LastTimestamp: in.DeprecatedLastTimestamp, Count: in.DeprecatedCount}
	if s := in.Series; s != nil {
		out.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
}

// defaultService sets what kube-apiserver would (but allocates no addresses or ports).
func defaultService(s *corev1.ServiceSpec) {
	set := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	set((*string)(&s.Type), "ClusterIP")
	set((*string)(&s.SessionAffinity), "None")
	if s.SessionAffinity == corev1.ServiceAffinityClientIP && s.SessionAffinityConfig == nil {
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10800)}}
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		set((*string)(&p.Protocol), "TCP")
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if s.Type == corev1.ServiceTypeExternalName {
		return
	}
	s.InternalTrafficPolicy = ptr.To(ptr.Deref(s.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster))
	if s.Type != corev1.ServiceTypeClusterIP {
		set((*string)(&s.ExternalTrafficPolicy), "Cluster")
	}
	if len(s.ClusterIPs) == 0 && s.ClusterIP != "" {
		s.ClusterIPs = []string{s.ClusterIP}
	}
	for _, ip := range s.ClusterIPs[len(s.IPFamilies):max(len(s.IPFamilies), len(s.ClusterIPs))] {
		family := corev1.IPv4Protocol
		if strings.Contains(ip, ":") {
			family = corev1.IPv6Protocol
		}
		s.IPFamilies = append(s.IPFamilies, family)
	}
	if len(s.IPFamilies) > 0 {
		policy := corev1.IPFamilyPolicySingleStack
		if len(s.IPFamilies) > 1 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		s.IPFamilyPolicy = ptr.To(ptr.Deref(s.IPFamilyPolicy, policy))
	}
}

// ---- storage ----

// storageCodec drops the kind that decoding leaves on an object, as conversion to
// an internal type would, so list items have no apiVersion and kind of their own.
type storageCodec struct{ runtime.Codec }

func (c storageCodec) Decode(b []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, k, err := c.Codec.Decode(b, gvk, into)
	if err == nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj, k, err
}

// strategy accepts everything; it only keeps an EndpointSlice's generation.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	namespaced bool
}

func (s strategy) NamespaceScoped() bool                                                   { return s.namespaced }
func (strategy) AllowCreateOnUpdate() bool                                                 { return false }
func (strategy) AllowUnconditionalUpdate() bool                                            { return true }
func (strategy) Canonicalize(runtime.Object)                                               {}
func (strategy) Validate(context.Context, runtime.Object) (l field.ErrorList)              { return }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) (w []string)             { return }
func (strategy) ValidateUpdate(_ context.Context, _, _ runtime.Object) (l field.ErrorList) { return }
func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) (w []string)      { return }

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
		s.Generation = 1
	}
}

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
		o := old.(*discoveryv1.EndpointSlice)
		s.Generation = o.Generation
		if !equality.Semantic.DeepEqual(s.Endpoints, o.Endpoints) || !equality.Semantic.DeepEqual(s.Ports, o.Ports) {
			s.Generation++
		}
	}
}

// eventAttrs lets events be selected by what they are about, as kubectl describe does.
func eventAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	e := obj.(*corev1.Event)
	return e.Labels, fields.Set{"metadata.name": e.Name, "metadata.namespace": e.Namespace, "reason": e.Reason, "type": e.Type,
		"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.namespace": e.InvolvedObject.Namespace,
		"involvedObject.name": e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID)}, nil
}

// serviceAttrs lets services be selected by cluster IP and type, as newer API servers do.
func serviceAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	s := obj.(*corev1.Service)
	return s.Labels, fields.Set{"metadata.name": s.Name, "metadata.namespace": s.Namespace,
		"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}, nil
}

func serviceLabel(label, value string) (string, string, error) {
	switch label {
	case "metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type":
		return label, value, nil
	}
	return "", "", fmt.Errorf("%q is not a known field selector: only metadata.name, metadata.namespace, spec.clusterIP, spec.type", label)
}

type resource struct {
	*genericregistry.Store
	short []string
}

func (r resource) ShortNames() []string { return r.short }

func newStore(getter generic.RESTOptionsGetter, group, name, singular string, namespaced bool, obj, list runtime.Object, attrs storage.AttrFunc, short ...string) rest.Storage {
	s := strategy{scheme, names.SimpleNameGenerator, namespaced}
	gr := schema.GroupResource{Group: group, Resource: name}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return obj.DeepCopyObject() },
		NewListFunc:               func() runtime.Object { return list.DeepCopyObject() },
		DefaultQualifiedResource:  gr,
		SingularQualifiedResource: schema.GroupResource{Group: group, Resource: singular},
		CreateStrategy:            s, UpdateStrategy: s, DeleteStrategy: s,
		TableConvertor: rest.NewDefaultTableConvertor(gr),
	}
	opts := &generic.StoreOptions{RESTOptions: getter, AttrFunc: attrs}
	if name == "events" {
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return 3600, nil }
	}
	check(store.CompleteWithOptions(opts))
	return resource{store, short}
}

// ---- server ----

// schemas gives every resource an open schema, enough to track managed fields and serve /openapi.
func schemas(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	defs := map[string]common.OpenAPIDefinition{}
	add := func(obj any) {
		defs[openapiutil.GetCanonicalTypeName(obj)] = common.OpenAPIDefinition{Schema: spec.Schema{
			SchemaProps: spec.SchemaProps{Type: []string{"object"}},
			// a map for each: the builder writes the type's group, version and kind into it
			VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-kubernetes-preserve-unknown-fields": true}},
		}}
	}
	for gvk := range scheme.AllKnownTypes() {
		obj, err := scheme.New(gvk)
		check(err)
		add(obj)
	}
	for _, obj := range []any{metav1.Patch{}, metav1.APIGroupList{}, metav1.APIGroup{}, metav1.APIResourceList{}, metav1.APIVersions{}, version.Info{}} {
		add(obj)
	}
	return defs
}

func serve(args []string) {
	fs := flag.NewFlagSet("serve", flag.ExitOnError)
	klog.InitFlags(fs)
	etcd := fs.String("etcd", "http://127.0.0.1:2379", "etcd URL")
	prefix := fs.String("prefix", "/registry", "etcd key prefix")
	bind := fs.String("bind", "127.0.0.1", "address to listen on, and the one in the kubeconfig unless unspecified")
	port := fs.Int("port", 6443, "port to listen on")
	san := fs.String("san", "", "further IP addresses, comma separated, for a newly made certificate")
	dir := fs.String("data-dir", "", "where to keep apiserver.crt, apiserver.key, ca.crt and kubeconfig (required)")
	token := fs.String("token", "kapi-token", "a bearer token, written into the kubeconfig")
	tokenFile := fs.String("token-file", "", "file of bearer tokens, one per line, read at every request: if given, only these are accepted")
	clientCA := fs.String("client-ca", "", "file with the certificate authority of accepted client certificates")
	forbid := fs.String("forbid", "", "resources to which all access is refused, comma separated")
	withoutSlices := fs.Bool("without-slices", false, "do not serve discovery.k8s.io, like a server from before EndpointSlices")
	withoutServiceFields := fs.Bool("without-service-fields", false, "know no field selectors of Services but their names")
	compactEvery := fs.Duration("compact-every", 5*time.Minute, "etcd compaction interval")
	watchCache := fs.Bool("watch-cache", true, "use the watch cache")
	gates := fs.String("feature-gates", "", "for example WatchList=false")
	fs.Parse(args)
	if *dir == "" {
		check(fmt.Errorf("-data-dir is required"))
	}
	check(utilfeature.DefaultMutableFeatureGate.Set(*gates))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	cfg := genericserver.NewConfig(codecs)
	cfg.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	cfg.Authorization.Authorizer = forbidding(*forbid)
	tokens := func() []string { return []string{*token} }
	if *tokenFile != "" {
		tokens = func() []string {
			text, err := os.ReadFile(*tokenFile)
			if err != nil {
				klog.ErrorS(err, "No token is valid")
			}
			return strings.Fields(string(text))
		}
	}
	bearer := bearertoken.New(authenticator.TokenFunc(func(_ context.Context, t string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}},
			slices.Contains(tokens(), t), nil
	}))
	cfg.Authentication.Authenticator = bearer
	cfg.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(schemas, openapi.NewDefinitionNamer(clientscheme.Scheme))

	serving := options.NewSecureServingOptions()
	serving.BindAddress, serving.BindPort, serving.PermitAddressSharing = net.ParseIP(*bind), *port, true
	serving.ServerCert.CertDirectory = *dir
	host := *bind
	if serving.BindAddress.IsUnspecified() {
		host = "127.0.0.1"
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, s := range strings.FieldsFunc(*san, func(r rune) bool { return r == ',' }) {
		ips = append(ips, net.ParseIP(s))
	}
	check(serving.MaybeDefaultWithSelfSignedCerts(host, []string{"kubernetes", "kubernetes.default.svc", "localhost"}, ips))
	check(serving.WithLoopback().ApplyTo(&cfg.SecureServing, &cfg.LoopbackClientConfig))
	if *clientCA != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", *clientCA)
		check(err)
		check(cfg.Authentication.ApplyClientCert(ca, cfg.SecureServing))
		cfg.Authentication.Authenticator = union.New(x509.NewDynamic(ca.VerifyOptions, x509.CommonNameUserConversion), bearer)
	}
	url := "https://" + net.JoinHostPort(host, strconv.Itoa(serving.BindPort))
	kubeconfig := writeKubeconfig(*dir, url, *token)

	pb, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	codec := storageCodec{codecs.CodecForVersions(pb.Serializer, codecs.UniversalDeserializer(), gvs, runtime.InternalGroupVersioner)}
	backend := options.NewEtcdOptions(storagebackend.NewDefaultConfig(*prefix, codec))
	backend.StorageConfig.Transport.ServerList = []string{*etcd}
	backend.StorageConfig.CompactionInterval = *compactEvery
	backend.EnableWatchCache = *watchCache
	check(backend.ApplyTo(cfg))

	server, err := cfg.Complete(nil).New("kapi", genericserver.NewEmptyDelegate())
	check(err)
	get, services := cfg.RESTOptionsGetter, storage.AttrFunc(nil)
	if !*withoutServiceFields {
		services = serviceAttrs
		check(scheme.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Service"), serviceLabel))
	}
	events := newStore(get, "", "events", "event", true, &corev1.Event{}, &corev1.EventList{}, eventAttrs, "ev")
	for _, gv := range gvs {
		info := genericserver.NewDefaultAPIGroupInfo(gv.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
		switch gv.Group {
		case "":
			info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{
				"services":        newStore(get, "", "services", "service", true, &corev1.Service{}, &corev1.ServiceList{}, services, "svc"),
				"nodes":           newStore(get, "", "nodes", "node", false, &corev1.Node{}, &corev1.NodeList{}, nil, "no"),
				"namespaces":      newStore(get, "", "namespaces", "namespace", false, &corev1.Namespace{}, &corev1.NamespaceList{}, nil, "ns"),
				"endpoints":       newStore(get, "", "endpoints", "endpoints", true, &corev1.Endpoints{}, &corev1.EndpointsList{}, nil, "ep"),
				"configmaps":      newStore(get, "", "configmaps", "configmap", true, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, nil, "cm"),
				"secrets":         newStore(get, "", "secrets", "secret", true, &corev1.Secret{}, &corev1.SecretList{}, nil),
				"serviceaccounts": newStore(get, "", "serviceaccounts", "serviceaccount", true, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{}, nil, "sa"),
				"events":          events,
			}
			check(server.InstallLegacyAPIGroup(genericserver.DefaultLegacyAPIPrefix, &info))
			continue
		case "discovery.k8s.io":
			if *withoutSlices {
				continue
			}
			info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"endpointslices": newStore(get, gv.Group,
				"endpointslices", "endpointslice", true, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}, nil)}
		case "events.k8s.io":
			info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"events": events}
		case "coordination.k8s.io":
			info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"leases": newStore(get, gv.Group,
				"leases", "lease", true, &coordv1.Lease{}, &coordv1.LeaseList{}, nil)}
		case "networking.k8s.io":
			info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"servicecidrs": newStore(get, gv.Group,
				"servicecidrs", "servicecidr", false, &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}, nil)}
		case "apps":
			info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"daemonsets": newStore(get, gv.Group,
				"daemonsets", "daemonset", true, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{}, nil, "ds")}
		case "rbac.authorization.k8s.io":
			info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{
				"clusterroles": newStore(get, gv.Group, "clusterroles", "clusterrole", false,
					&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}, nil),
				"clusterrolebindings": newStore(get, gv.Group, "clusterrolebindings", "clusterrolebinding", false,
					&rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{}, nil)}
		}
		check(server.InstallAPIGroup(&info))
	}

	go func() {
		c := client(kubeconfig)
		for c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() != nil {
			time.Sleep(50 * time.Millisecond)
		}
		fmt.Println("ready", url)
	}()
	go func() { // a graceful stop waits for open watches; do not let it hang
		<-ctx.Done()
		time.Sleep(2 * time.Second)
		os.Exit(0)
	}()
	check(server.PrepareRun().RunWithContext(ctx))
}

// forbidding allows everything except the resources listed.
func forbidding(list string) authorizer.Authorizer {
	refused := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if slices.Contains(refused, a.GetResource()) {
			return authorizer.DecisionDeny, "kapi was told to forbid it", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
}

func writeKubeconfig(dir, url, token string) string {
	pem, err := os.ReadFile(filepath.Join(dir, "apiserver.crt"))
	check(err)
	ca := pem[strings.LastIndex(string(pem), "-----BEGIN"):] // the bundle is the serving certificate, then its CA
	check(os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o644))
	path := filepath.Join(dir, "kubeconfig")
	c := clientcmdapi.NewConfig()
	c.Clusters["kapi"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["kapi"] = &clientcmdapi.Context{Cluster: "kapi", AuthInfo: "admin"}
	c.CurrentContext = "kapi"
	check(clientcmd.WriteToFile(*c, path))
	return path
}

func client(kubeconfig string) *kubernetes.Clientset {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	check(err)
	cfg.QPS, cfg.ContentType = -1, runtime.ContentTypeProtobuf
	c, err := kubernetes.NewForConfig(cfg)
	check(err)
	return c
}

// compact makes etcd forget all history before now, and tells the server so the way its own compactor does.
func compact(args []string) {
	fs := flag.NewFlagSet("compact", flag.ExitOnError)
	etcd := fs.String("etcd", "http://127.0.0.1:2379", "etcd URL")
	fs.Parse(args)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{*etcd}, DialTimeout: 5 * time.Second})
	check(err)
	ctx := context.Background()
	r, err := c.Get(ctx, "compact_rev_key")
	check(err)
	rev := r.Header.Revision
	_, err = c.Put(ctx, "compact_rev_key", strconv.FormatInt(rev, 10))
	check(err)
	_, err = c.Compact(ctx, rev, clientv3.WithCompactPhysical())
	check(err)
	fmt.Println("compacted before", rev)
}

func main() {
	cmds := map[string]func([]string){"serve": serve, "fill": fill, "touch": touch, "compact": compact, "client-cert": clientCert}
	if len(os.Args) < 2 || cmds[os.Args[1]] == nil {
		check(fmt.Errorf("usage: kapi serve|fill|touch|compact|client-cert [flags]"))
	}
	cmds[os.Args[1]](os.Args[2:])
}
