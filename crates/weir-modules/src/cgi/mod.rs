//! What the protocols that descend from CGI share (FastCGI, SCGI, uwsgi): a request is a list of parameters
//! ([`params`]), an answer begins with fields but has no line for the status ([`head`]), and servers are named without
//! a URI ([`target`]).

pub(crate) mod head;
pub(crate) mod params;
pub(crate) mod target;
