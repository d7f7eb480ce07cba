-- `ngx.ocsp`
local _, native = ...
local ssl = native.ssl
return {
    version = "0.1.33",
    get_ocsp_responder_from_der_chain = ssl.ocsp_responder,
    create_ocsp_request = ssl.ocsp_request,
    validate_ocsp_response = ssl.ocsp_validate,
    set_ocsp_status_resp = ssl.set_ocsp,
}
